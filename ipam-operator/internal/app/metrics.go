// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// authorizedMetrics lets those read metrics whom the API server knows and allows to. A token that it does not know is answered with 401 and not with 500: the
// filter of controller-runtime takes it for a failure of its own.
func authorizedMetrics(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	filter, err := filters.WithAuthenticationAndAuthorization(config, client)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
		filtered, err := filter(log, handler)
		if err != nil {
			return nil, err
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			filtered.ServeHTTP(&unauthenticated{ResponseWriter: w}, r)
		}), nil
	}, nil
}

// unauthenticated turns a failed authentication into 401.
type unauthenticated struct {
	http.ResponseWriter
	failed bool // 500 is not sent yet
}

// WriteHeader implements http.ResponseWriter.
func (w *unauthenticated) WriteHeader(status int) {
	if w.failed = status == http.StatusInternalServerError; !w.failed {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *unauthenticated) Write(body []byte) (int, error) {
	if w.failed {
		w.failed = false
		status := http.StatusInternalServerError
		if bytes.HasPrefix(body, []byte("Authentication failed")) {
			status = http.StatusUnauthorized
		}
		w.ResponseWriter.WriteHeader(status)
	}
	return w.ResponseWriter.Write(body)
}
