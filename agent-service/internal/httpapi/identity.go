// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"net/http"
	"net/url"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
)

var errReadOnly = &refusal{http.StatusForbidden, "this account is read-only: it changes nothing, and downloads neither images nor credentials"}

// reads are the operations of accounts that are read-only. An operation that is not listed is refused: it changes something, or its answer may hold credentials.
var reads = []string{
	"CheckBindHost", "CountHosts", "GetCluster", "GetClusterDefaultConfig", "GetClusterSupportedPlatforms", "GetDetailedSupportedFeatures", "GetHost", "GetIdentity", "GetIgnoredValidations", "GetInfraEnv",
	"GetPreflightRequirements", "GetSupportedArchitectures", "GetSupportedFeatures", "ListAllHosts", "ListClusterHosts", "ListClusters", "ListComponentVersions", "ListEvents", "ListHosts",
	"ListInfraEnvs", "ListManagedDomains", "ListMonitoredOperators", "ListReleaseSources", "ListSupportedOpenshiftVersions", "ListSupportedOperators", "StreamChanges", "StreamEvents",
}

// proxyFor is a proxy as the caller may see it: accounts that are read-only do not get its credentials.
func proxyFor(ctx context.Context, p domain.Proxy) domain.Proxy {
	if principal(ctx).ReadOnly {
		p.HTTP, p.HTTPS = withoutUser(p.HTTP), withoutUser(p.HTTPS)
	}
	return p
}

// withoutUser is an address without user and password.
func withoutUser(address string) string {
	at, err := url.Parse(address)
	if err != nil {
		return ""
	}
	at.User = nil
	return at.String()
}

// GetIdentity implements api.StrictServerInterface.
func (s *facts) GetIdentity(ctx context.Context, _ api.GetIdentityRequestObject) (api.GetIdentityResponseObject, error) {
	by := principal(ctx)
	return api.GetIdentity200JSONResponse{UserName: by.User, OrgID: by.Organization, Admin: by.Admin, ReadOnly: by.ReadOnly}, nil
}
