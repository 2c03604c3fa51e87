// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"net/http"

	"github.com/muster-io/muster/agent-service/api"
)

var errReadOnly = &refusal{http.StatusForbidden, "this account is read-only: it changes nothing, and downloads neither images nor credentials"}

// reads are the operations of accounts that are read-only. An operation that is not listed is refused: it changes something, or its answer may hold credentials.
var reads = []string{
	"CheckBindHost", "CountHosts", "GetCluster", "GetClusterDefaultConfig", "GetClusterSupportedPlatforms", "GetDetailedSupportedFeatures", "GetHost", "GetIdentity", "GetIgnoredValidations", "GetInfraEnv",
	"GetPreflightRequirements", "GetSupportedArchitectures", "GetSupportedFeatures", "ListAllHosts", "ListClusterHosts", "ListClusters", "ListComponentVersions", "ListEvents", "ListHosts",
	"ListInfraEnvs", "ListManagedDomains", "ListMonitoredOperators", "ListReleaseSources", "ListSupportedOpenshiftVersions", "ListSupportedOperators", "StreamChanges", "StreamEvents",
}

// GetIdentity implements api.StrictServerInterface.
func (s *facts) GetIdentity(ctx context.Context, _ api.GetIdentityRequestObject) (api.GetIdentityResponseObject, error) {
	by := principal(ctx)
	return api.GetIdentity200JSONResponse{UserName: by.User, OrgID: by.Organization, Admin: by.Admin, ReadOnly: by.ReadOnly}, nil
}
