// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// choosesByLabels: labels are those of the node, of the InfraEnv and of the hardware, as far as the principal may see them.
func choosesByLabels(t *testing.T, s *store.Store, _ string) {
	owner, creator := domain.Owner{User: "owner"}, domain.Owner{User: "creator"}
	c := &domain.Cluster{ID: uuid.NewString(), Name: "c", Owner: creator, CreatedAt: time.Now()}
	names := map[domain.HostKey]string{}
	update(t, s, func(ctx context.Context, tx transaction.Tx) {
		require.NoError(t, tx.PutCluster(ctx, c))
		e, other := infraEnv(owner), infraEnv(owner)
		e.AgentLabels, other.AgentLabels = map[string]string{"site": "north", "example.com/rack_row": "r1"}, nil
		require.NoError(t, tx.PutInfraEnv(ctx, e))
		require.NoError(t, tx.PutInfraEnv(ctx, other))
		at := time.Now()
		for i, h := range []*domain.Host{host(e), host(e), host(other), host(other)} {
			h.NodeLabels = []map[string]string{{"rack": "a"}, {"rack": "b", "site": "south"}, {"rack": "a", "gpu": ""}, nil}[i]
			h.Summary.CPUArchitecture = []string{"x86_64", "aarch64", "x86_64", "x86_64"}[i]
			h.CreatedAt = at.Add(time.Duration(i) * time.Second)
			if i == 2 {
				h.ClusterID, h.State = c.ID, lifecycle.Known
			}
			names[h.HostKey] = string(rune('0' + i))
			require.NoError(t, tx.PutHost(ctx, h))
		}
	})
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		for _, one := range []struct {
			by             domain.Principal
			selector, want string
		}{
			{domain.Principal{Admin: true}, "", "0123"},
			{domain.Principal{Admin: true}, "rack=a", "02"},
			{domain.Principal{Admin: true}, "rack in (a,b)", "012"},
			{domain.Principal{Admin: true}, "rack", "012"},
			{domain.Principal{Admin: true}, "!rack", "3"},
			{domain.Principal{Admin: true}, "rack!=a", "13"},
			{domain.Principal{Admin: true}, "gpu=", "2"},
			{domain.Principal{Admin: true}, "site=north", "0"},
			{domain.Principal{Admin: true}, "site=south", "1"},
			{domain.Principal{Admin: true}, "example.com/rack_row=r1,rack=b", "1"},
			{domain.Principal{Admin: true}, "example.com/rack.row", ""},
			{domain.Principal{Admin: true}, "inventory.agent-install.openshift.io/cpu-architecture=aarch64", "1"},
			{domain.Principal{User: "owner"}, "rack=a", "0"}, // the creator of its cluster says how the other one is used
			{domain.Principal{User: "owner"}, "site=north", "0"},
			{domain.Principal{User: "creator"}, "rack=a", "2"},
			{domain.Principal{User: "creator"}, "site=north", ""},
			{domain.Principal{User: "stranger"}, "rack", ""},
		} {
			selector, err := labels.Parse(one.selector)
			require.NoError(t, err)
			scope := domain.Scope{Principal: one.by}
			list, err := r.Hosts(ctx, scope, domain.HostFilter{Selector: selector})
			require.NoError(t, err)
			got := ""
			for i := range list.Items {
				got += names[list.Items[i].HostKey]
			}
			assert.Equal(t, one.want, got, "%s for %+v", one.selector, one.by)
			assert.Equal(t, len(one.want), list.Total)
			counts, err := r.CountHosts(ctx, scope, domain.HostFilter{Selector: selector})
			require.NoError(t, err)
			total := 0
			for _, count := range counts {
				total += count
			}
			assert.Equal(t, len(one.want), total, "%s for %+v", one.selector, one.by)
		}
		selector := labels.SelectorFromSet(labels.Set{"rack": "a"})
		list, err := r.Hosts(ctx, domain.Scope{Principal: domain.Principal{Admin: true}}, domain.HostFilter{Selector: selector, Page: domain.Page{Limit: 1, Offset: 1}})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		assert.Equal(t, "2", names[list.Items[0].HostKey])
		assert.Equal(t, 2, list.Total)
		list, err = r.Hosts(ctx, domain.Scope{Principal: domain.Principal{Admin: true}}, domain.HostFilter{Selector: selector, States: []lifecycle.State{lifecycle.Known}})
		require.NoError(t, err)
		assert.Equal(t, 1, list.Total)
		return nil
	}))
}
