// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsauth answers unknown bearer tokens at the metrics port with 401, which all operators do alike.
package metricsauth

import (
	"bytes"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
)

// failed begins the answer of the filter of controller-runtime to a token that could not be authenticated, whatever the cause.
const failed = "Authentication failed"

// RefuseUnknownTokens returns provide with one change: a token that the API server does not know is answered with 401. The filter of controller-runtime,
// WithAuthenticationAndAuthorization, takes it for a failure of its own and answers 500. As long as the API server gives no answer to reviews of tokens, the answer is 500 still.
func RefuseUnknownTokens[F ~func(logr.Logger, http.Handler) (http.Handler, error)](
	provide func(*rest.Config, *http.Client) (F, error),
) func(*rest.Config, *http.Client) (F, error) {
	return func(config *rest.Config, client *http.Client) (F, error) {
		watched, asked := *client, &reviews{next: client.Transport}
		watched.Transport = asked
		filter, err := provide(config, &watched)
		if err != nil {
			return nil, err
		}
		return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
			filtered, err := filter(log, handler)
			if err != nil {
				return nil, err
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				filtered.ServeHTTP(&answer{ResponseWriter: w, reviews: asked}, r)
			}), nil
		}, nil
	}
}

// reviews notes whether the last review of a token got an answer.
type reviews struct {
	next   http.RoundTripper
	failed atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (r *reviews) RoundTrip(request *http.Request) (*http.Response, error) {
	next := r.next
	if next == nil {
		next = http.DefaultTransport
	}
	response, err := next.RoundTrip(request)
	if strings.HasSuffix(request.URL.Path, "/tokenreviews") {
		r.failed.Store(err != nil || response.StatusCode >= http.StatusBadRequest)
	}
	return response, err
}

// answer turns a failed authentication into 401.
type answer struct {
	http.ResponseWriter
	reviews *reviews
	held    bool // 500 is not sent yet: its body says what failed
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.held = status == http.StatusInternalServerError; !a.held {
		a.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(body []byte) (int, error) {
	if a.held {
		a.held = false
		status := http.StatusInternalServerError
		if bytes.HasPrefix(body, []byte(failed)) && !a.reviews.failed.Load() {
			status = http.StatusUnauthorized
		}
		a.ResponseWriter.WriteHeader(status)
	}
	return a.ResponseWriter.Write(body)
}
