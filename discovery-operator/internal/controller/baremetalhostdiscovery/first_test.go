// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// page is how many rows a page of the rack has. It is less than what is asked for, as an Ironic with a lower limit answers.
const page = 20

// paging is a rack that lists its second page of nodes when it is let.
type paging struct {
	crashing
	asked, listed chan struct{}
}

func newPaging(s *harness) paging {
	return paging{crashing{s.rack, faultinject.Never()}, make(chan struct{}), make(chan struct{})}
}

func (p paging) Source(context.Context, string, *metal3v1.IronicReference) (fleet.Source, error) {
	return p, nil
}

func (p paging) NodesPage(ctx context.Context, after string, limit int) ([]inventory.Node, bool, error) {
	if after != "" {
		close(p.asked)
		select {
		case <-p.listed:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	rows, err := p.Nodes(ctx, after)
	limit = min(limit, page)
	return rows[:min(limit, len(rows))], len(rows) > limit, err
}

func (p paging) PortsPage(ctx context.Context, after string, limit int) ([]inventory.Port, bool, error) {
	rows, err := p.Ports(ctx, after)
	limit = min(limit, page)
	return rows[:min(limit, len(rows))], len(rows) > limit, err
}

// TestHostsAreMadeWhileAFleetIsListed has a fleet of two pages. A process that finds the status of an earlier one waits for both of them.
func TestHostsAreMadeWhileAFleetIsListed(t *testing.T) {
	const machines = page + 10
	s := newHarness(t, "a")
	for i := range machines {
		s.machines(i + 1)
	}
	get := func() *metal3v1.BareMetalHostDiscovery {
		var d metal3v1.BareMetalHostDiscovery
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &d))
		return &d
	}
	d := get()
	d.Spec.RateLimit.HostsPerMinute = 1_000_000
	require.NoError(t, s.Update(t.Context(), d))

	first, from := s.start(faultinject.Never()), newPaging(s)
	first.Sources = from
	require.Eventually(t, func() bool { s.look(first); return get().Status.Counts.Hosts == page }, time.Minute, 5*time.Millisecond)
	<-from.asked
	assert.EqualValues(t, page, get().Status.Counts.Nodes)
	close(from.listed)
	require.Eventually(t, func() bool { s.look(first); return get().Status.Counts.Hosts == machines }, time.Minute, 5*time.Millisecond)
	first.end()

	second, from := s.start(faultinject.Never()), newPaging(s)
	second.Sources = from
	defer second.end()
	s.look(second) // it begins to read
	<-from.asked
	d = get()
	for range 5 {
		s.look(second)
	}
	assert.Equal(t, d.ResourceVersion, get().ResourceVersion, "what the first one wrote is the best that is known")
	s.machines(machines + 1)
	close(from.listed)
	require.Eventually(t, func() bool { s.look(second); return get().Status.Counts.Hosts == machines+1 }, time.Minute, 5*time.Millisecond)
	for _, h := range s.hosts() {
		for _, c := range h.Status.Conditions {
			assert.NotEqual(t, metal3v1.ConditionNodePresent, c.Type, "no host was lost")
		}
	}
}
