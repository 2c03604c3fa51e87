// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"context"
	"slices"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// inUse are the states of hosts that keep their InfraEnv from being deleted, and mayReturn those of which some do.
var (
	inUse = slices.DeleteFunc(slices.Clone(lifecycle.States), func(state lifecycle.State) bool { return lifecycle.Unbound(state) && !lifecycle.Busy(state) })

	mayReturn = slices.DeleteFunc(slices.Clone(lifecycle.States), func(state lifecycle.State) bool {
		return slices.Contains(inUse, state) || state == lifecycle.KnownUnbound
	})
)

// returnPage is how many hosts are looked at at a time.
const returnPage = 500

// Keeps is why an InfraEnv is not deleted while it has this host, nil for one that goes with it.
func Keeps(h *domain.Host, now time.Time) error {
	switch {
	case slices.Contains(inUse, h.State):
		return domain.Refuse(domain.Conflict, "HostsBound", "InfraEnv %s has hosts that are bound to clusters, %s among them: unbind them first", h.InfraEnvID, h.HostID)
	case h.Returns(now):
		return domain.Refuse(domain.Conflict, "HostsBound", "InfraEnv %s has hosts that are on their way back from clusters, %s among them: wait until they are free, or delete those whose machines are gone for good",
			h.InfraEnvID, h.HostID)
	}
	return nil
}

// KeepsAny is Keeps of the hosts of an InfraEnv, nil where it can be deleted.
func KeepsAny(ctx context.Context, r HostReader, infraEnvID string, now time.Time) (why, err error) {
	if why, err = keepsAny(ctx, r, domain.HostFilter{InfraEnvID: infraEnvID, States: inUse, Page: domain.Page{Limit: 1}}, now); why != nil || err != nil {
		return why, err
	}
	filter := domain.HostFilter{InfraEnvID: infraEnvID, States: mayReturn, Page: domain.Page{Limit: returnPage}}
	return keepsAny(ctx, r, filter, now)
}

func keepsAny(ctx context.Context, r HostReader, filter domain.HostFilter, now time.Time) (why, err error) {
	for {
		page, err := r.Hosts(ctx, domain.Scope{Principal: domain.Kubernetes}, filter)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			if why := Keeps(&page.Items[i], now); why != nil {
				return why, nil
			}
		}
		if len(page.Items) < filter.Limit {
			return nil, nil
		}
		filter.Offset += filter.Limit
	}
}
