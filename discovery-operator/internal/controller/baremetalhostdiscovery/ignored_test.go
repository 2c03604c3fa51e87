// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// reports counts how often reports are read, and readings of everything.
type reports struct {
	crashing
	read, full *atomic.Int64
}

func (r reports) Source(context.Context, string, *metal3v1.IronicReference) (fleet.Source, error) {
	return r, nil
}

func (r reports) Report(ctx context.Context, uuid string) (*inventory.Report, error) {
	r.read.Add(1)
	return r.crashing.Report(ctx, uuid)
}

func (r reports) Nodes(ctx context.Context, after string) ([]inventory.Node, error) {
	if after == "" {
		r.full.Add(1)
	}
	return r.crashing.Nodes(ctx, after)
}

// TestAnIgnoredMachineCostsNoWrite lets a process look at a machine that is kept away over many readings of everything.
func TestAnIgnoredMachineCostsNoWrite(t *testing.T) {
	s := newHarness(t, "a")
	_, err := s.rack.Enrol(demo.Machine(1))
	require.NoError(t, err)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system}}
	reservation.Reservation{MAC: demo.MAC(1, 0), Ignored: true}.WriteTo(lease)
	lease.Labels[metal3v1.IgnoredLabel] = "true"
	require.NoError(t, s.Create(t.Context(), lease))
	p := s.start(faultinject.Never())
	defer p.end()
	from := reports{crashing{s.rack, faultinject.Never()}, &atomic.Int64{}, &atomic.Int64{}}
	p.Sources = from
	status := func() (version string, counts metal3v1.DiscoveryCounts) {
		var d metal3v1.BareMetalHostDiscovery
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &d))
		d.Status.LastPoll = nil
		return d.ResourceVersion, d.Status.Counts
	}
	require.Eventually(t, func() bool {
		s.look(p)
		_, counts := status()
		return counts.Ignored == 1
	}, time.Minute, 5*time.Millisecond)

	before, counts := status()
	began := from.full.Load()
	changes := map[string]bool{before: true}
	require.Eventually(t, func() bool {
		s.look(p)
		version, now := status()
		changes[version] = true
		require.Equal(t, counts, now)
		return from.full.Load() >= began+10
	}, time.Minute, 5*time.Millisecond)
	assert.LessOrEqual(t, len(changes), int(from.full.Load()-began)+1, "the time of a reading of everything is written, and nothing else")
	assert.EqualValues(t, 1, from.read.Load())
	assert.Empty(t, s.hosts())
}
