// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package setplan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// dual asks for an address of a second pool.
func dual(changes ...func(*ipamv1.IPClaim)) *ipamv1.IPClaim {
	claim := &ipamv1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "node-0", UID: "1", Labels: map[string]string{ipamv1.ClusterNameLabel: "c"}},
		Spec: ipamv1.IPClaimSpec{
			Pool:                ipamv1.ObjectReference{Name: "v4"},
			AdditionalAddresses: []ipamv1.AdditionalAddress{{Name: "v6", Pool: &ipamv1.PoolReference{Namespace: "lab", Name: "six"}, PrefixLength: 64}},
		},
	}
	for _, change := range changes {
		change(claim)
	}
	return claim
}

// child is the IPClaim of that address, changed.
func child(changes ...func(*ipamv1.IPClaim)) *ipamv1.IPClaim {
	claim := dual()
	made := newChild(claim, claim.Spec.AdditionalAddresses[0])
	for _, change := range changes {
		change(made)
	}
	return made
}

func served(c *ipamv1.IPClaim) {
	c.Status.Address, c.Status.IPAddress = &ipamv1.ObjectReference{Namespace: "lab", Name: "six-fd00--1"}, new(ipamv1.IPAddressStr("fd00::1"))
	c.Status.Prefix = 64
}

func exhausted(c *ipamv1.IPClaim) {
	c.Status.Conditions = []metav1.Condition{{Type: ipamv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: ipamv1.ReasonPoolExhausted, Message: "Exhausted IP Pools"}}
}

func deleting(c *ipamv1.IPClaim) { c.DeletionTimestamp = new(metav1.Now()) }

func paused(c *ipamv1.IPClaim) { c.Annotations = map[string]string{ipamv1.PausedAnnotation: "by hand"} }

func orphaned(c *ipamv1.IPClaim) { c.OwnerReferences = nil }

func TestPlan(t *testing.T) {
	const has = "has"
	for name, test := range map[string]struct {
		claim      *ipamv1.IPClaim
		child      *ipamv1.IPClaim
		held       bool // the claim
		heldEntry  bool // only the address
		wantAction any
		want       string // the reason why the address is missing; has for none; empty for no report
	}{
		"an address without a claim gets one":                                {dual(), nil, false, false, CreateClaim{}, ipamv1.ReasonAddressesPending},
		"nothing is made while the pool of the address is paused":            {dual(), nil, false, true, nil, ipamv1.ReasonAddressesPending},
		"nothing is made nor written while the claim is held":                {dual(), nil, true, false, nil, ""},
		"a deleted claim is left to the garbage collector":                   {dual(deleting), child(served), false, false, nil, ""},
		"a claim that waits says why":                                        {dual(), child(exhausted), false, false, nil, ipamv1.ReasonPoolExhausted},
		"a claim that was not looked at is waited for":                       {dual(), child(), false, false, nil, ipamv1.ReasonAddressesPending},
		"an address is collected":                                            {dual(), child(served), false, false, nil, has},
		"an address is collected while its pool is paused":                   {dual(), child(served), false, true, nil, has},
		"a deleted address does not count":                                   {dual(), child(served, deleting), false, false, nil, ipamv1.ReasonAddressesPending},
		"a restored claim gets its owner":                                    {dual(), child(served, orphaned), false, false, UpdateClaim{}, has},
		"a restored claim is left alone while its pool is paused":            {dual(), child(served, orphaned), false, true, nil, ipamv1.ReasonAddressesPending},
		"a claim of a user is left alone":                                    {dual(), child(orphaned, func(c *ipamv1.IPClaim) { c.Labels = nil }), false, false, nil, ipamv1.ReasonAllocationFailed},
		"a claim of a user for another pool is left alone":                   {dual(), child(orphaned, func(c *ipamv1.IPClaim) { c.Spec.Pool.Name = "x" }), false, false, nil, ipamv1.ReasonAllocationFailed},
		"a claim of another owner is left alone":                             {dual(), child(func(c *ipamv1.IPClaim) { c.OwnerReferences[0].Kind = "Metal3Data" }), false, false, nil, ipamv1.ReasonAddressesPending},
		"a claim of an earlier claim of the name is waited for":              {dual(func(c *ipamv1.IPClaim) { c.UID = "2" }), child(served), false, false, nil, ipamv1.ReasonAddressesPending},
		"a changed label is carried":                                         {dual(func(c *ipamv1.IPClaim) { c.Labels["rack"] = "1" }), child(served), false, false, UpdateClaim{}, has},
		"a label that names the Cluster is taken back":                       {dual(func(c *ipamv1.IPClaim) { c.Labels = nil }), child(served), false, false, UpdateClaim{}, has},
		"a label of its own stays":                                           {dual(), child(served, func(c *ipamv1.IPClaim) { c.Labels["own"] = "1" }), false, false, nil, has},
		"a pause is carried, and nothing else is done":                       {dual(paused), child(served), true, false, UpdateClaim{}, ""},
		"a pause that was carried is ended":                                  {dual(), child(served, func(c *ipamv1.IPClaim) { c.Annotations = map[string]string{ipamv1.PausedAnnotation: pausedByClaim} }), false, false, UpdateClaim{}, has},
		"a pause of its own stays":                                           {dual(), child(served, paused), false, false, nil, has},
		"a pause of its own stays when the claim is paused":                  {dual(paused), child(served, paused), true, false, nil, ""},
		"nothing is carried while the Cluster is paused, as a mover is busy": {dual(func(c *ipamv1.IPClaim) { c.Labels["rack"] = "1" }), child(served), true, false, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &ipamv1.PoolReference{Namespace: "lab", Name: "six"}
			entry := Entry{Address: test.claim.Spec.AdditionalAddresses[0], Held: test.heldEntry, Child: test.child, Pool: pool}
			before := test.child.DeepCopy()
			got := Plan(Snapshot{Claim: test.claim, Held: test.held, Entries: []Entry{entry}})
			assert.Equal(t, before, test.child, "a plan changes nothing that it sees")
			if test.wantAction == nil {
				assert.Empty(t, got.Actions)
			} else {
				require.Len(t, got.Actions, 1)
				assert.IsType(t, test.wantAction, got.Actions[0])
			}
			switch test.want {
			case "":
				assert.Nil(t, got.Report)
			case has:
				require.Empty(t, got.Report.Missing)
				assert.Equal(t, []ipamv1.ClaimAddress{{
					Name: "v6", Address: ipamv1.ObjectReference{Namespace: "lab", Name: "six-fd00--1"}, IPAddress: "fd00::1", Pool: pool, Prefix: 64,
				}}, got.Report.Addresses)
			default:
				require.Len(t, got.Report.Missing, 1)
				assert.Equal(t, test.want, got.Report.Missing[0].Reason, got.Report.Missing[0].Message)
				assert.Empty(t, got.Report.Addresses)
			}
		})
	}
}

// A pass that finds what the last one did has nothing left to do.
func TestPlansEnd(t *testing.T) {
	for name, test := range map[string]struct{ claim, child *ipamv1.IPClaim }{
		"made":              {dual(), nil},
		"restored":          {dual(), child(orphaned)},
		"labels":            {dual(func(c *ipamv1.IPClaim) { c.Labels["rack"] = "1" }), child()},
		"paused":            {dual(paused), child()},
		"goes on":           {dual(), child(func(c *ipamv1.IPClaim) { c.Annotations = map[string]string{ipamv1.PausedAnnotation: pausedByClaim} })},
		"without a Cluster": {dual(func(c *ipamv1.IPClaim) { c.Labels = nil }), child()},
	} {
		t.Run(name, func(t *testing.T) {
			entry := Entry{Address: test.claim.Spec.AdditionalAddresses[0], Child: test.child}
			first := Plan(Snapshot{Claim: test.claim, Entries: []Entry{entry}})
			require.Len(t, first.Actions, 1)
			switch do := first.Actions[0].(type) {
			case CreateClaim:
				entry.Child = do.Claim
			case UpdateClaim:
				entry.Child = do.After
			}
			assert.Empty(t, Plan(Snapshot{Claim: test.claim, Entries: []Entry{entry}}).Actions)
		})
	}
}

func TestAChildAsksForWhatItsAddressSays(t *testing.T) {
	made := child()
	assert.Equal(t, "node-0-v6", made.Name)
	assert.Equal(t, ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Namespace: "lab", Name: "six"}, PrefixLength: 64}, made.Spec)
	assert.Equal(t, map[string]string{ipamv1.ClusterNameLabel: "c", ipamv1.AddressNameLabel: "v6"}, made.Labels)
	require.NotNil(t, metav1.GetControllerOf(made))
	assert.Equal(t, "1", string(metav1.GetControllerOf(made).UID))
}

func TestReady(t *testing.T) {
	claim := dual(func(c *ipamv1.IPClaim) { c.Status.IPAddress = new(ipamv1.IPAddressStr("10.0.0.1")) })
	pending := Ready(claim, Unreported(claim))
	assert.Equal(t, metav1.ConditionFalse, pending.Status)
	assert.Equal(t, "The claim has 10.0.0.1; v6: IPClaim node-0-v6 has no address yet", pending.Message)
	waits := Ready(claim, []Missing{{"v6", ipamv1.ReasonPoolExhausted, "Exhausted IP Pools"}})
	assert.Equal(t, ipamv1.ReasonPoolExhausted, waits.Reason)
	claim.Status.Addresses = []ipamv1.ClaimAddress{{Name: "v6", IPAddress: "fd00::1"}}
	all := Ready(claim, Unreported(claim))
	assert.Equal(t, metav1.ConditionTrue, all.Status)
	assert.Equal(t, "The claim has 10.0.0.1, fd00::1", all.Message)
}
