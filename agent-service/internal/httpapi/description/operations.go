// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package description compares requests with the description of REST v2, api/openapi.yaml, and says what that has of each operation.
package description

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/muster-io/muster/agent-service/api"
)

// Operation is what the description says of one pattern of the router.
type Operation struct {
	// ID is its operationId.
	ID string
	// Machines is true where tokens of hosts or images are accepted, and Images where short ones of images are.
	Machines, Images bool
	// Downloads is true where an address with a token of its own can be made.
	Downloads bool

	path     string
	item     *openapi3.PathItem
	spec     *openapi3.Operation
	document *openapi3.T
}

// Operations are those of the description, by the patterns of the router.
func Operations(description *openapi3.T) map[string]Operation {
	found := map[string]Operation{}
	for path, item := range description.Paths.Map() {
		for method, spec := range item.Operations() {
			// The caller is known before a request is compared with the description, which would read the body once more for each scheme.
			unsecured := *spec
			unsecured.Security = openapi3.NewSecurityRequirements()
			o := Operation{ID: spec.OperationID, path: path, item: item, spec: &unsecured, document: description}
			if spec.Security != nil {
				for _, requirement := range *spec.Security {
					for scheme := range requirement {
						o.Machines = o.Machines || scheme == "agentAuth" || scheme == "urlAuth"
						o.Images = o.Images || scheme == "imageURLAuth"
						o.Downloads = o.Downloads || scheme == "downloadAuth"
					}
				}
			}
			found[method+" "+api.Base+path] = o
		}
	}
	return found
}

// DropEmpty takes query parameters without a value out of a request, but for required ones. assisted-service takes them for absent, and clients in Python send one for each
// argument that is an empty text.
func (o *Operation) DropEmpty(r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return // Check refuses it
	}
	dropped := false
	for _, p := range slices.Concat(o.item.Parameters, o.spec.Parameters) {
		values, given := query[p.Value.Name]
		if !given || p.Value.In != openapi3.ParameterInQuery || p.Value.Required || slices.ContainsFunc(values, func(v string) bool { return v != "" }) {
			continue
		}
		delete(query, p.Value.Name)
		dropped = true
	}
	if dropped {
		address := *r.URL
		address.RawQuery = query.Encode()
		r.URL = &address
	}
}
