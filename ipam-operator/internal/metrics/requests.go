// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests counts the operator's requests to the API server.
type Requests struct {
	total *prometheus.CounterVec
}

// NewRequests returns a counter that is not registered anywhere yet.
func NewRequests() *Requests {
	return &Requests{total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ipam_operator_client_requests_total",
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
		verb, resource := classify(request)
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

// classify says what a request does to which resource. Names are left out, so that the label comes from a closed set.
func classify(request *http.Request) (verb, resource string) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return verbOf(request, false), "none"
	}
	// namespaces/<name>/<resource>… is about the resource, unless what follows is a subresource of the namespace itself.
	if len(parts) > 2 && parts[0] == "namespaces" && !slices.Contains([]string{"status", "finalize"}, parts[2]) {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return verbOf(request, len(parts) > 1), resource
}

func verbOf(request *http.Request, named bool) string {
	switch request.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		return "delete"
	case http.MethodPatch:
		if strings.HasPrefix(request.Header.Get("Content-Type"), "application/apply-patch") {
			return "apply"
		}
		return "patch"
	}
	switch {
	case request.URL.Query().Get("watch") != "":
		return "watch"
	case named:
		return "get"
	}
	return "list"
}
