// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
	"github.com/muster-io/muster/discovery-operator/internal/reserve"
)

// templated makes a resource whose hosts get the management controllers that their machines reported.
func templated(t *testing.T) *harness {
	t.Helper()
	s := newHarness(t, "a")
	var d metal3v1.BareMetalHostDiscovery
	require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &d))
	d.Spec.HostTemplate.BMC = &metal3v1.BMCTemplate{Address: "ipmi://${bmcAddress}:6230", CredentialsName: "usual"}
	require.NoError(t, s.Update(t.Context(), &d))
	return s
}

func (s *harness) refused() string {
	var d metal3v1.BareMetalHostDiscovery
	require.NoError(s, s.Get(s.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &d))
	if len(d.Status.Machines) != 1 {
		return ""
	}
	return d.Status.Machines[0].Reason
}

// TestAManagementControllerIsReservedForOneHost has a user who registers a host with the management controller of a machine at the moment at which discovery
// makes the machine's host.
func TestAManagementControllerIsReservedForOneHost(t *testing.T) {
	key := inventory.BMCKey("ipmi://172.0.39.17:6230") // of machine 10001
	byHand := reservation.Reservation{BMC: key, Host: inventory.Ref{Namespace: "ns", Name: "by-hand"}, OnDeletion: reservation.Release}
	take := func(s *harness) error {
		byHand.Renewed = time.Now().Add(24 * time.Hour) // processes of this test are ahead of each other
		r := reserve.Reserver{Client: s.WithWatch, Live: s.WithWatch, Namespace: system, FieldOwner: "test", Now: time.Now}
		return r.Take(s.Context(), byHand)
	}
	t.Run("the user comes first", func(t *testing.T) {
		s := templated(t)
		s.machines(10001)
		require.NoError(t, take(s))
		p := s.start(faultinject.Never())
		defer p.end()
		for range 50 {
			s.look(p)
		}
		assert.Empty(t, s.hosts(), "the host of the user is on its way")
		host := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "by-hand", Annotations: map[string]string{metal3v1.NodeAnnotation: "another"},
		}}
		host.Spec.BootMACAddress = "02:00:00:00:00:01"
		host.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://172.0.39.17:6230", CredentialsName: "x"}
		require.NoError(t, s.Create(t.Context(), host))
		require.Eventually(t, func() bool { s.look(p); return s.refused() == metal3v1.RefusedDuplicateBMC }, time.Minute, 5*time.Millisecond)
		assert.Len(t, s.hosts(), 1)
	})
	t.Run("discovery comes first", func(t *testing.T) {
		s := templated(t)
		s.machines(10001)
		p := s.start(faultinject.Never())
		defer p.end()
		require.Eventually(t, func() bool { s.look(p); return len(s.hostNames()) == 1 }, time.Minute, 5*time.Millisecond)
		var lease coordinationv1.Lease
		require.NoError(t, s.Get(t.Context(), types.NamespacedName{Namespace: system, Name: byHand.LeaseName()}, &lease))
		assert.Equal(t, key, lease.Annotations[metal3v1.ReservedBMCAnnotation])
		require.ErrorIs(t, take(s), reserve.ErrReserved)
	})
}
