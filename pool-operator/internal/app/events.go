// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"time"

	"k8s.io/client-go/transport"

	"github.com/muster-io/muster/apis/apirequest"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterpool"
)

// longestDelayOfEvents is for how long an event waits for claims at most.
const longestDelayOfEvents = 3 * time.Second

// eventsAfter lets events wait while claims are being served. The recorder writes them in the background, and each claim and each cluster has one: together they would take a share of the
// API server from claims.
func eventsAfter(claims clusterpool.Priority) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if verb, resource := apirequest.Of(request); resource == "events" && verb != "list" && verb != "get" && verb != "watch" {
				enough := time.NewTimer(longestDelayOfEvents)
				defer enough.Stop()
				select {
				case <-claims.Idle():
				case <-enough.C:
				case <-request.Context().Done():
				}
			}
			return next.RoundTrip(request)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
