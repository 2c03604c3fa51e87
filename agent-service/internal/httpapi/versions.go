// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"strings"

	"github.com/muster-io/muster/agent-service/api"
)

// ListComponentVersions implements api.StrictServerInterface.
func (s *facts) ListComponentVersions(context.Context, api.ListComponentVersionsRequestObject) (api.ListComponentVersionsResponseObject, error) {
	return api.ListComponentVersions200JSONResponse{Versions: map[string]string{"agent-service": s.Release, "agent": s.Release}, ReleaseTag: s.Release}, nil
}

// ListSupportedOpenshiftVersions implements api.StrictServerInterface.
func (s *facts) ListSupportedOpenshiftVersions(_ context.Context, r api.ListSupportedOpenshiftVersionsRequestObject) (api.ListSupportedOpenshiftVersionsResponseObject, error) {
	found := api.ListSupportedOpenshiftVersions200JSONResponse{}
	for _, v := range s.Versions {
		if !strings.HasPrefix(v.Name, given(r.Params.Version)) || given(r.Params.OnlyLatest) && !v.Default {
			continue
		}
		found[v.Name] = api.OpenshiftVersion{DisplayName: v.DisplayName, SupportLevel: "production", Default: v.Default, CPUArchitectures: v.CPUArchitectures}
	}
	return found, nil
}
