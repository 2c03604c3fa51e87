// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// numbered makes resources that number their hosts rack-1, rack-2 and so on. Each takes the machines of one name.
func numbered(t *testing.T, names ...string) *harness {
	t.Helper()
	s := newHarness(t, names...)
	for i, name := range names {
		var d metal3v1.BareMetalHostDiscovery
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: name}, &d))
		d.Spec.ResourceNameTemplate = metal3v1.ResourceNameTemplate{Prefix: "rack-", Expression: "${counter}", HardwareDetails: metal3v1.DetailHostname}
		d.Spec.Selector = "hardware.hostname.startsWith('node-" + string(rune('1'+i)) + "')"
		require.NoError(t, s.Update(t.Context(), &d))
	}
	return s
}

// machines lets machines report whose names have a first digit.
func (s *harness) machines(i ...int) {
	for _, n := range i {
		_, err := s.rack.Enrol(demo.Machine(n))
		require.NoError(s, err)
	}
}

func (s *harness) hostNames() []string {
	var out []string
	for _, h := range s.hosts() {
		if h.HasStatus() {
			out = append(out, h.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (s *harness) named(p *process, want ...string) {
	s.Helper()
	require.Eventually(s, func() bool { s.look(p); return len(s.hostNames()) >= len(want) }, time.Minute, 5*time.Millisecond)
	assert.Equal(s, want, s.hostNames())
}

// TestACounterGoesOnOverRestartsAndResources has two resources of one namespace that number their hosts alike, and two processes, one after the other.
func TestACounterGoesOnOverRestartsAndResources(t *testing.T) {
	s := numbered(t, "a", "b")
	s.machines(10001, 20001)
	first := s.start(faultinject.Never())
	s.named(first, "rack-1", "rack-2")
	first.end()

	s.machines(10002, 20002)
	second := s.start(faultinject.Never())
	defer second.end()
	s.named(second, "rack-1", "rack-2", "rack-3", "rack-4")
	hosts := s.hosts()
	s.deleteHost(&hosts[1])
	s.machines(10003)
	s.named(second, "rack-1", "rack-2", "rack-3", "rack-4")
}

// TestANumberThatAnotherResourceTakesFirstIsLeftToIt has another resource make a host of the same number between the decision and the creation.
func TestANumberThatAnotherResourceTakesFirstIsLeftToIt(t *testing.T) {
	s := numbered(t, "a")
	s.machines(10001)
	p := s.start(faultinject.Never())
	defer p.end()
	raced := false
	p.Client = interceptor.NewClient(s.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if host, ok := o.(*metal3v1.BareMetalHost); ok && !raced {
				raced = true
				other := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name}}
				other.Spec.BootMACAddress = demo.MAC(20001, 0)
				other.Status.LastUpdated = new(metav1.Now())
				require.NoError(t, c.Create(ctx, other))
			}
			return c.Create(ctx, o, opts...)
		},
	})
	require.Eventually(t, func() bool { s.look(p); return len(s.hosts()) == 2 }, time.Minute, 5*time.Millisecond)
	assert.True(t, raced)
	assert.Equal(t, "rack-2", s.hosts()[1].Name)
	var d metal3v1.BareMetalHostDiscovery
	require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &d))
	assert.Zero(t, d.Status.Counts.Refused)
	var leases coordinationv1.LeaseList
	require.NoError(t, s.List(t.Context(), &leases))
	require.Len(t, leases.Items, 1)
	assert.Equal(t, "ns/rack-2", leases.Items[0].Annotations[metal3v1.HostAnnotation])
}
