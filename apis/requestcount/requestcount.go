// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requestcount counts an operator's requests to the Kubernetes API, alike in all operators.
package requestcount

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-io/muster/apis/apirequest"
)

// Counter counts requests by verb, resource and status code. It is a prometheus.Collector.
type Counter struct {
	*prometheus.CounterVec
}

// New returns a counter named metric, such as pool_operator_client_requests_total. It is not registered anywhere yet.
func New(metric string) *Counter {
	return &Counter{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: metric,
		Help: "Requests to the API server, by verb (get, list, watch, create, update, patch, apply, delete), resource[/subresource] and status code.",
	}, []string{"verb", "resource", "code"})}
}

// Wrap counts what goes through next; the code of a request without a response is "error". It fits rest.Config.Wrap.
func (c *Counter) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		verb, resource := apirequest.Of(request)
		response, err := next.RoundTrip(request)
		code := "error"
		if err == nil {
			code = strconv.Itoa(response.StatusCode)
		}
		c.WithLabelValues(verb, resource, code).Inc()
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
