// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"net/http"
	"strings"

	"github.com/muster-io/muster/agent-service/api"
)

// unserved are operations of assisted-service that this service does not have, and why. docs/migration/agent.md lists them.
var unserved = map[string]string{
	"POST /clusters/disconnected":              "installers that carry their own service are not made here",
	"PUT /clusters/{cluster_id}/logs-progress": "logs are followed per host: use logs-progress of the host",
	"GET /supported-operators/{operator_name}": "no operators are installed with a cluster",
	"GET /operators/bundles":                   "no operators are installed with a cluster",
	"GET /operators/bundles/{id}":              "no operators are installed with a cluster",
}

// refuseUnserved answers them with the reason.
func (s *server) refuseUnserved(mux *http.ServeMux) {
	for pattern, why := range unserved {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+api.Base+path, func(w http.ResponseWriter, r *http.Request) {
			s.refuse(w, r, &refusal{http.StatusNotFound, "this service does not have this: " + why})
		})
	}
}
