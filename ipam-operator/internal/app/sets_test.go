// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// twoFamilies makes the pools v4 and v6 with this many addresses each.
func (w *testEnv) twoFamilies(v4, v6 int, changes ...func(*ipamv1.IPPoolSpec)) {
	w.t.Helper()
	for name, entry := range map[string]ipamv1.Pool{
		"v4": span("10.0.0.10", fmt.Sprintf("10.0.0.%d", 9+v4)),
		"v6": span("fd00::10", fmt.Sprintf("fd00::%x", 15+v6)),
	} {
		w.pool(name, func(s *ipamv1.IPPoolSpec) {
			s.Pools = []ipamv1.Pool{entry}
			for _, change := range changes {
				change(s)
			}
		})
	}
}

func (w *site) newDual(name string) *ipamv1.IPClaim {
	claim := w.newClaim(name, "v4")
	claim.Spec.AdditionalAddresses = []ipamv1.AdditionalAddress{{Name: "v6", Pool: &ipamv1.PoolReference{Name: "v6"}}}
	return claim
}

func (w *site) dual(name string) *ipamv1.IPClaim {
	w.t.Helper()
	claim := w.newDual(name)
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	return claim
}

func readyOf(claim *ipamv1.IPClaim) metav1.Condition {
	if claim != nil {
		if ready := meta.FindStatusCondition(claim.Status.Conditions, ipamv1.ReadyCondition); ready != nil {
			return *ready
		}
	}
	return metav1.Condition{}
}

// whole waits until a claim is ready, and returns its addresses.
func (w *site) whole(name string) []string {
	w.t.Helper()
	var claim *ipamv1.IPClaim
	w.eventually(name+" is not ready", func() bool {
		claim = w.getClaim(name)
		return readyOf(claim).Status == metav1.ConditionTrue
	})
	out := []string{string(*claim.Status.IPAddress)}
	for _, address := range claim.Status.Addresses {
		out = append(out, string(address.IPAddress))
	}
	assert.Equal(w.t, "The claim has "+strings.Join(out, ", "), readyOf(claim).Message)
	return out
}

// lacks waits until a claim is not ready for a reason, and its message has a text.
func (w *site) lacks(name, reason, message string) {
	w.t.Helper()
	w.eventually(name+" does not tell "+reason+": "+message, func() bool {
		ready := readyOf(w.getClaim(name))
		return ready.Status == metav1.ConditionFalse && ready.Reason == reason && strings.Contains(ready.Message, message)
	})
}

// TestOneClaimHasAddressesOfTwoFamilies serves a claim from two pools and a third one that its labels choose: it is ready when it has all, and takes all along when it goes.
func TestOneClaimHasAddressesOfTwoFamilies(t *testing.T) {
	w := newTestEnv(t)
	w.twoFamilies(1, 1)
	w.labelledPool("chosen", "a", "10.1.0.1", "10.1.0.9")
	w.operator(nil)
	claim := w.newDual("node-0")
	claim.Spec.AdditionalAddresses = append(claim.Spec.AdditionalAddresses,
		ipamv1.AdditionalAddress{Name: "storage", PoolSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}})
	require.NoError(t, w.user.Create(t.Context(), claim))
	addresses := w.whole("node-0")
	require.Len(t, addresses, 3)
	assert.Equal(t, []string{"10.0.0.10", "fd00::10"}, addresses[:2])
	status := w.getClaim("node-0").Status
	assert.Equal(t, "v4-10-0-0-10", status.Address.Name)
	assert.Equal(t, "v6-fd00--10", status.Addresses[0].Address.Name)
	assert.Equal(t, "v6", status.Addresses[0].Pool.Name)
	assert.Equal(t, 24, status.Addresses[0].Prefix)
	assert.Equal(t, "chosen", status.Addresses[1].Pool.Name)
	child := w.getClaim("node-0-v6")
	assert.Equal(t, "node-0", child.Labels["for"], "it has the labels of the claim")
	assert.Equal(t, claim.UID, metav1.GetControllerOf(child).UID)
	w.settled()

	w.dual("late")
	w.lacks("late", ipamv1.ReasonPoolExhausted, "")
	w.delete(claim)
	assert.Equal(t, []string{"10.0.0.10", "fd00::10"}, w.whole("late"), "the addresses of a deleted claim are free")
	w.untilUsed("chosen", 0)
	w.settled()
}

// TestAClaimThatLacksOneFamilySaysSo names on the claim which of its pools has nothing left, and what stands in the way of an address.
func TestAClaimThatLacksOneFamilySaysSo(t *testing.T) {
	w := newTestEnv(t)
	w.twoFamilies(9, 1)
	w.operator(nil)
	w.claim("has", "v6")
	w.address("has")
	w.dual("waits")
	w.lacks("waits", ipamv1.ReasonPoolExhausted, "v6: Exhausted IP Pools")
	got := w.getClaim("waits")
	require.NotNil(t, got.Status.Address, "it has its first address all the while")
	assert.Nil(t, got.Status.ErrorMessage)
	w.delete(w.getClaim("has"))
	assert.Equal(t, "fd00::10", w.whole("waits")[1])

	stranger := w.claim("node-v6", "v4")
	w.address("node-v6")
	w.dual("node")
	w.lacks("node", ipamv1.ReasonAllocationFailed, "IPClaim node-v6 is there already and does not belong to this claim")
	w.delete(w.getClaim("waits"))
	w.delete(stranger)
	w.whole("node")

	first := w.getClaim("node-v6")
	w.delete(first)
	w.gone(first)
	w.eventually("the claim of an address is not made again", func() bool {
		again := w.getClaim("node-v6")
		return again != nil && again.UID != first.UID && again.Status.Address != nil
	})
	w.whole("node")
	w.settled()
}

// TestAClaimOfSeveralAddressesMadeAgain gets all its former addresses where the pools keep them.
func TestAClaimOfSeveralAddressesMadeAgain(t *testing.T) {
	w := newTestEnv(t)
	w.twoFamilies(200, 200, func(s *ipamv1.IPPoolSpec) {
		s.AllocationStrategy, s.StickyFor = ipamv1.RandomAllocation, &metav1.Duration{Duration: time.Hour}
	})
	w.operator(nil)
	claim := w.dual("node-0")
	before := w.whole("node-0")
	w.delete(claim)
	w.gone(claim)
	w.dual("node-0") // its IPClaim of before may still be there
	assert.Equal(t, before, w.whole("node-0"))
	w.settled()
}

func TestAdditionalAddressesAreValidated(t *testing.T) {
	w := newTestEnv(t)
	for name, test := range map[string]struct {
		change func(*ipamv1.IPClaim)
		want   string
	}{
		"pool and selector": {func(c *ipamv1.IPClaim) { c.Spec.AdditionalAddresses[0].PoolSelector = &metav1.LabelSelector{} }, "pool must name an IPPool, or poolSelector choose one, and not both"},
		"no pool":           {func(c *ipamv1.IPClaim) { c.Spec.AdditionalAddresses[0].Pool = nil }, "pool must name an IPPool, or poolSelector choose one, and not both"},
		"one name twice": {func(c *ipamv1.IPClaim) {
			c.Spec.AdditionalAddresses = append(c.Spec.AdditionalAddresses, c.Spec.AdditionalAddresses[0])
		}, "Duplicate value"},
		"a name with a dash": {func(c *ipamv1.IPClaim) { c.Spec.AdditionalAddresses[0].Name = "v-6" }, "should match"},
		"a long name":        {func(c *ipamv1.IPClaim) { c.Name = strings.Repeat("a", 251) }, "at most 253 characters"},
		"no first address":   {func(c *ipamv1.IPClaim) { c.Spec.Pool.Name = "" }, "pool.name must name an IPPool"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := w.newDual("bad")
			test.change(claim)
			require.ErrorContains(t, w.user.Create(t.Context(), claim), test.want)
		})
	}
	w.dual("good")
	w.claim("plain", "v4")
	for claim, patch := range map[string]string{
		"good":  `[{"op":"replace","path":"/spec/additionalAddresses/0/pool/name","value":"other"}]`,
		"plain": `[{"op":"add","path":"/spec/additionalAddresses","value":[{"name":"v6","pool":{"name":"v6"}}]}]`,
	} {
		err := w.user.Patch(t.Context(), w.getClaim(claim), client.RawPatch(types.JSONPatchType, []byte(patch)))
		require.ErrorContains(t, err, "additionalAddresses cannot be modified; create another claim")
	}
	err := w.user.Patch(t.Context(), w.getClaim("good"), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/additionalAddresses"}]`)))
	require.ErrorContains(t, err, "additionalAddresses cannot be modified; create another claim")
}

// TestASetIsLeftToTheMover takes an IPClaim of a claim away while their Cluster is paused, as a mover does: it is not made again before the Cluster goes on. A pause of the claim
// holds for what was made for it, too.
func TestASetIsLeftToTheMover(t *testing.T) {
	w := newTestEnv(t)
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.twoFamilies(9, 9, func(s *ipamv1.IPPoolSpec) { s.ClusterName = new("c") })
	w.pool("free", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.1.0.10", "10.1.0.200")} })
	cluster := w.cluster("c", false)
	w.operator(nil)
	w.dual("a")
	w.whole("a")

	w.merge(w.getClaim("a"), `{"metadata":{"annotations":{"`+ipamv1.PausedAnnotation+`":""}}}`)
	w.eventually("the pause is not carried", func() bool { _, on := w.getClaim("a-v6").Annotations[ipamv1.PausedAnnotation]; return on })
	w.merge(w.getClaim("a"), `{"metadata":{"annotations":null}}`)
	w.eventually("the pause is not ended", func() bool { _, on := w.getClaim("a-v6").Annotations[ipamv1.PausedAnnotation]; return !on })

	w.pause(cluster, true)
	w.follower("c")
	moved, had := w.getClaim("a-v6"), w.address("a-v6")
	for _, obj := range []client.Object{had, moved} {
		w.mark(obj)
		w.force(obj)
		w.gone(obj)
	}
	w.claim("witness", "free")
	w.address("witness")
	require.Nil(t, w.getClaim("a-v6"), "an IPClaim was made while the Cluster is paused")
	w.pause(cluster, false)
	w.eventually("the claim of an address is not made again", func() bool { return w.getClaim("a-v6") != nil })
	w.whole("a")
	w.settled()
}

// TestARestoredSetKeepsItsAddresses brings a claim and what was made for it back without owners and status: each has the address that it had.
func TestARestoredSetKeepsItsAddresses(t *testing.T) {
	w := newTestEnv(t)
	w.twoFamilies(200, 200, func(s *ipamv1.IPPoolSpec) { s.AllocationStrategy = ipamv1.RandomAllocation })
	stop := w.operator(nil)
	w.dual("a")
	before := w.whole("a")
	stop()
	addresses := &ipamv1.IPAddressList{}
	require.NoError(t, w.user.List(t.Context(), addresses, client.InNamespace(w.namespace)))
	require.Len(t, addresses.Items, 2)
	saved := []client.Object{&addresses.Items[0], &addresses.Items[1], w.getClaim("a-v6"), w.getClaim("a")}
	for _, obj := range saved {
		w.force(obj)
		w.gone(obj)
	}
	for _, obj := range saved { // the claim itself comes last
		obj.SetOwnerReferences(nil)
		obj.SetUID("")
		obj.SetResourceVersion("")
		require.NoError(t, w.user.Create(t.Context(), obj))
	}
	w.operator(nil)
	assert.Equal(t, before, w.whole("a"))
	owner := metav1.GetControllerOf(w.getClaim("a-v6"))
	require.NotNil(t, owner)
	assert.Equal(t, w.getClaim("a").UID, owner.UID)
	w.settled()
}

// TestADeathAtAnyWriteOfASetHeals lets the operator die after each of its writes: each claim has its addresses in the end, and nothing is left over.
func TestADeathAtAnyWriteOfASetHeals(t *testing.T) {
	diesAtEveryWrite(t, func(t *testing.T, writes writes) {
		w := newTestEnv(t)
		w.twoFamilies(2, 2)
		healsSet(w, writes)
	})
}

func healsSet(w *testEnv, writes writes) {
	w.t.Helper()
	stop := w.operator(writes.count)
	first := w.dual("a")
	w.eventually("the operator neither dies nor serves the claim", func() bool {
		select {
		case <-writes.Dead():
			return true
		default:
			return readyOf(w.getClaim("a")).Status == metav1.ConditionTrue
		}
	})
	w.delete(first)
	stop()
	w.operator(nil)
	w.gone(first)
	w.dual("b")
	w.dual("c")
	w.whole("b")
	w.whole("c")
	w.settled()
	list := &ipamv1.IPClaimList{}
	require.NoError(w.t, w.user.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	assert.Len(w.t, list.Items, 4)
	w.untilUsed("v4", 2)
	w.untilUsed("v6", 2)
}

// TestTwoReplicasServeSets makes each IPClaim once.
func TestTwoReplicasServeSets(t *testing.T) {
	w := newTestEnv(t)
	w.twoFamilies(12, 12)
	for range 2 {
		w.operator(nil)
	}
	for i := range 12 {
		w.dual(fmt.Sprintf("n%d", i))
	}
	for i := range 12 {
		w.whole(fmt.Sprintf("n%d", i))
	}
	w.settled()
}
