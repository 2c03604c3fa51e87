// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-io/muster/apis/apirequest"
)

// Requests counts the service's requests to the Kubernetes API.
type Requests struct {
	total *prometheus.CounterVec
}

// NewRequests returns a counter that is not registered anywhere yet.
func NewRequests() *Requests {
	return &Requests{total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "agent_service_client_requests_total",
		Help: "Requests to the API server, by verb (get, list, watch, create, update, patch, apply, delete), resource[/subresource] and status code.",
	}, []string{"verb", "resource", "code"})}
}

// Describe implements prometheus.Collector.
func (r *Requests) Describe(ch chan<- *prometheus.Desc) { r.total.Describe(ch) }

// Collect implements prometheus.Collector.
func (r *Requests) Collect(ch chan<- prometheus.Metric) { r.total.Collect(ch) }

// Wrap counts what goes through next. It fits rest.Config.Wrap.
func (r *Requests) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		verb, resource := apirequest.Of(request)
		response, err := next.RoundTrip(request)
		code := "error"
		if err == nil {
			code = strconv.Itoa(response.StatusCode)
		}
		r.total.WithLabelValues(verb, resource, code).Inc()
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
