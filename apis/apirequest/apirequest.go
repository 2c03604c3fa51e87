// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apirequest names what a request to the Kubernetes API does, so that requests are counted alike by every operator and by the
// benchmarks that judge them.
package apirequest

import (
	"net/http"
	"strings"
)

// Of returns the verb of a request (get, list, watch, create, update, patch, apply or delete) and the resource that it is about, with its
// subresource, as in clusterdeployments/status; none where the path is about no resource. Names of objects are left out, so that both
// come from a closed set.
func Of(request *http.Request) (verb, resource string) {
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
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
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
