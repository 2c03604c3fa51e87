// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"net/http"
	"strings"

	"github.com/muster-io/muster/agent-service/api"
)

// unserved are operations of today's system that this service does not have, and why. docs/migration/agent.md lists them.
var unserved = map[string]string{
	"POST /clusters/disconnected":                             "installers that carry their own service are not made here",
	"PUT /clusters/{cluster_id}/progress":                     "an installed cluster is complete when its hosts have said so; stages of its operators are not followed",
	"PUT /clusters/{cluster_id}/logs-progress":                "logs are followed per host: use logs-progress of the host",
	"POST /clusters/{cluster_id}/uploads/ingress-cert":        "the kubeconfig is taken as complete-installation gives it",
	"GET /clusters/{cluster_id}/monitored-operators":          "no operators are installed with a cluster",
	"PUT /clusters/{cluster_id}/monitored-operators":          "no operators are installed with a cluster",
	"GET /supported-operators/{operator_name}":                "no operators are installed with a cluster",
	"GET /operators/bundles":                                  "no operators are installed with a cluster",
	"GET /operators/bundles/{id}":                             "no operators are installed with a cluster",
	"GET /infra-envs/{infra_env_id}/downloads/minimal-initrd": "static networks are a part of the initrd that the ISO and the iPXE script name",
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
