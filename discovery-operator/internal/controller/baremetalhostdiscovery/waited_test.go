// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// TestAMachineThatLeftWhileItWaitedBecomesNoHost pauses a resource, and deletes a node before the pause ends. Ironic is read once, so that nothing else shows that the node
// is gone.
func TestAMachineThatLeftWhileItWaitedBecomesNoHost(t *testing.T) {
	s := newHarness(t, "a")
	get := func() *metal3v1.BareMetalHostDiscovery {
		var d metal3v1.BareMetalHostDiscovery
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &d))
		return &d
	}
	d := get()
	d.Spec.Paused = true
	d.Spec.Interval, d.Spec.ResyncInterval = &metav1.Duration{Duration: time.Hour}, &metav1.Duration{Duration: time.Hour}
	require.NoError(t, s.Update(t.Context(), d))
	stays, err := s.rack.Enrol(demo.Machine(1))
	require.NoError(t, err)
	leaves, err := s.rack.Enrol(demo.Machine(2))
	require.NoError(t, err)
	p := s.start(faultinject.Never())
	defer p.end()
	require.Eventually(t, func() bool {
		s.look(p)
		machines := get().Status.Machines
		return len(machines) == 2 && machines[0].Reason == metal3v1.WaitingForResume && machines[1].Reason == metal3v1.WaitingForResume
	}, time.Minute, 5*time.Millisecond)

	require.NoError(t, s.rack.DeleteNode(t.Context(), leaves))
	d = get()
	d.Spec.Paused = false
	require.NoError(t, s.Update(t.Context(), d))
	require.Eventually(t, func() bool {
		s.look(p)
		return len(s.hosts()) > 0 && get().Status.Counts.Nodes == 1
	}, time.Minute, 5*time.Millisecond)
	s.look(p)
	require.Len(t, s.hosts(), 1)
	assert.Equal(t, stays, s.hosts()[0].Annotations[metal3v1.NodeAnnotation])
}
