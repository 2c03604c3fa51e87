// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// now is the time of these passes.
var now = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)

// seen is the snapshot of a host in a state, with power control and credentials that were accepted.
func seen(state hoststate.State, change ...func(*hoststate.Snapshot)) hoststate.Snapshot {
	h := deployable()
	h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1/redfish/v1/Systems/1", CredentialsName: "bmc"}
	h.Spec.BootMACAddress = "52:54:00:00:00:01"
	h.Status.Provisioning.State, h.Status.Provisioning.ID = metal3v1.ProvisioningState(state), "node"
	h.Status.HardwareDetails, h.Status.LastUpdated = &metal3v1.HardwareDetails{}, &metav1.Time{Time: now}
	h.Status.GoodCredentials = metal3v1.CredentialsStatus{Reference: &corev1.SecretReference{Name: "bmc"}, Version: "1"}
	s := hoststate.Snapshot{
		Host: h, State: state, Facts: hoststate.FactsOf(h), NodeID: "node", Good: h.Status.GoodCredentials,
		Secret: hoststate.Secret{Found: true, Version: "1", Username: "admin", Password: "hush"},
	}
	s.Facts.Deployable = false
	for _, c := range change {
		c(&s)
	}
	return s
}

// admitted says that Ironic serves the pass, and that the node is the host's.
func admitted(s *hoststate.Snapshot) {
	s.Seen.Connected, s.Seen.Held = true, map[string]string{"node": ""}
}

func TestAPassAsksOneThingAfterTheOther(t *testing.T) {
	s := seen(hoststate.Available)
	d := hoststate.Plan(now, s)
	assert.Equal(t, hoststate.Connect, d.Do.Call)
	s.Seen.Connected = true
	d = hoststate.Plan(now, s)
	assert.Equal(t, hoststate.Action{Call: hoststate.Hold, Node: "node"}, d.Do)
	t.Run("a host acts on no node of another one", func(t *testing.T) {
		s.Seen.Held = map[string]string{"node": "node node belongs to host ns/other"}
		d := hoststate.Plan(now, s)
		assert.Empty(t, d.Do)
		assert.Equal(t, metal3v1.ReasonMachineUsedByOther, d.Then.Reason)
		assert.Equal(t, "Node node belongs to host ns/other.", d.Then.Message)
		assert.Equal(t, hoststate.Available, d.Step.To)
	})
	s.Seen.Held = map[string]string{"node": ""}
	d = hoststate.Plan(now, s)
	assert.Equal(t, hoststate.Action{Call: hoststate.ReadNode, Node: "node"}, d.Do)
	n := deployed("manageable", func(n *hoststate.Node) {
		a, err := hoststate.AccessTo(*s.Host.Spec.BMC, "admin", "")
		require.NoError(t, err)
		n.Driver, n.Info, n.Power = a.Driver, a.Info, hoststate.PowerDown
	})
	s.Seen.Node = &n
	d = hoststate.Plan(now, s)
	assert.Equal(t, hoststate.Action{Call: hoststate.SetPower, Node: "node", Target: hoststate.PowerOn}, d.Do)
	require.NotNil(t, d.Then, "the answer is waited for")
	assert.Equal(t, metal3v1.ReasonPoweringOn, d.Then.Reason)
	assert.Equal(t, hoststate.PowerOn, d.Known.Memory.Power)
	assert.Empty(t, s.Memory.Power, "a plan changes nothing of what it was given")
}

func TestFailuresAreRetriedLater(t *testing.T) {
	s := seen(hoststate.Registering, admitted, func(s *hoststate.Snapshot) { s.Facts.Unverified, s.Secret.Found = true, false })
	t.Run("a Secret that is missing is looked for every 15 s", func(t *testing.T) {
		d := hoststate.Plan(now, s)
		assert.Equal(t, metal3v1.ReasonCredentialsNotFound, d.Then.Reason)
		assert.Equal(t, hoststate.SecretRetry, d.Then.After)
	})
	refuse := func(s *hoststate.Snapshot) {
		s.Seen.Err, s.Seen.At = inventory.Failf(inventory.ProblemRefused, "no"), hoststate.ReadNode
	}
	t.Run("a refusal after 15 s, and after twice that, up to 5 minutes", func(t *testing.T) {
		s := seen(hoststate.Available, admitted)
		for _, want := range []time.Duration{15, 30, 60, 120, 240, 300, 300} {
			refuse(&s)
			d := hoststate.Plan(now, s)
			assert.Equal(t, want*time.Second, d.Then.After)
			assert.Equal(t, now.Add(want*time.Second), d.Known.Memory.NotBefore)
			assert.Equal(t, hoststate.Available, d.Step.To)
			s.Memory = d.Known.Memory
		}
	})
	t.Run("refused credentials after 10 minutes, because controllers lock accounts", func(t *testing.T) {
		s := seen(hoststate.Registering, admitted, func(s *hoststate.Snapshot) {
			s.Memory.Asked = hoststate.AskedManage
			s.Seen.Node = &hoststate.Node{UUID: "node", State: inventory.NodeEnroll, LastError: "HTTP 401: hush is wrong"}
		})
		d := hoststate.Plan(now, s)
		assert.Equal(t, metal3v1.ReasonBMCCredentialsRefused, d.Then.Reason)
		assert.NotContains(t, d.Then.Message, "hush")
		assert.Equal(t, now.Add(10*time.Minute), d.Known.Memory.NotBefore)
		assert.Equal(t, hoststate.SecretRetry, d.Then.After, "another Secret is tried at once")
	})
	t.Run("what is not due is not done, and nothing is said", func(t *testing.T) {
		s := seen(hoststate.Available, func(s *hoststate.Snapshot) { s.Memory.NotBefore, s.Facts.Resting = now.Add(time.Minute), true })
		d := hoststate.Plan(now, s)
		assert.Empty(t, d.Do)
		assert.True(t, d.Then.Parked)
		assert.Equal(t, hoststate.SecretRetry, d.Then.After)
	})
	t.Run("an Ironic that cleans as many machines as it may is asked again, and is not away", func(t *testing.T) {
		s := seen(hoststate.Deprovisioning, admitted, func(s *hoststate.Snapshot) {
			s.Seen.Err, s.Seen.At = inventory.Failf(inventory.ProblemFull, "HTTP 503: the limit for unprovisioning has been reached."), hoststate.SetProvision
		})
		d := hoststate.Plan(now, s)
		assert.False(t, d.Then.Blocked)
		assert.Equal(t, metal3v1.ReasonNodeBusy, d.Then.Reason)
		assert.Contains(t, d.Then.Message, "unprovisioning")
		assert.Equal(t, 10*time.Second, d.Then.After)
		assert.Equal(t, hoststate.Deprovisioning, d.Step.To)
		assert.Zero(t, d.Known.Memory.Failures, "a deletion does not give up")
	})
	t.Run("an Ironic that does not answer is not the host's fault", func(t *testing.T) {
		s := seen(hoststate.Available, func(s *hoststate.Snapshot) {
			s.Seen.Err, s.Seen.At = inventory.Failf(inventory.ProblemUnreachable, "refused"), hoststate.Connect
		})
		d := hoststate.Plan(now, s)
		assert.True(t, d.Then.Blocked)
		assert.Equal(t, hoststate.EndpointRetry, d.Then.After, "it goes on within 15 s of Ironic's return")
		assert.False(t, d.Then.Spread)
		assert.Zero(t, d.Known.Memory.Failures)
		assert.Empty(t, d.Status(now).ErrorType)
	})
}

func TestADeletionGivesUp(t *testing.T) {
	leaving := func(s *hoststate.Snapshot) { s.Facts.Deleting = true }
	t.Run("switching a machine off, in the third try", func(t *testing.T) {
		s := seen(hoststate.PoweringOff, admitted, leaving, func(s *hoststate.Snapshot) {
			s.Seen.Node = &hoststate.Node{UUID: "node", State: inventory.NodeManageable, Power: hoststate.PowerOn}
			s.Memory.Power = hoststate.PowerDown
		})
		for range 2 {
			d := hoststate.Plan(now, s)
			require.Equal(t, hoststate.Failed, d.Then.Event)
			s.Memory = d.Known.Memory
			s.Memory.Power = hoststate.PowerDown
		}
		d := hoststate.Plan(now, s)
		assert.Equal(t, hoststate.GaveUp, d.Then.Event)
		assert.Equal(t, hoststate.Deleting, d.Step.To)
	})
	t.Run("waiting for an Ironic that is away, when the node may stay", func(t *testing.T) {
		s := seen(hoststate.PoweringOff, leaving, func(s *hoststate.Snapshot) {
			s.Host.Annotations = map[string]string{metal3v1.KeepNodeAnnotation: "true"}
			s.Seen.Err, s.Seen.At = inventory.Failf(inventory.ProblemUnreachable, "refused"), hoststate.Connect
		})
		d := hoststate.Plan(now, s)
		assert.Equal(t, hoststate.Deleting, d.Step.To)
		assert.True(t, d.Known.KeepAway)
		s.State, s.Seen = hoststate.Deleting, hoststate.Seen{}
		d = hoststate.Plan(now, s)
		assert.Equal(t, hoststate.Gone, d.Step.To, "and Ironic is not asked at all")
		assert.True(t, d.Known.KeepAway)
	})
	t.Run("ending a deployment, and its node goes all the same", func(t *testing.T) {
		for instance, own := range map[string]bool{"": true, "11111111-1111-4111-8111-111111111111": true, "22222222-2222-4222-8222-222222222222": false} {
			s := seen(hoststate.Deleting, admitted, leaving, func(s *hoststate.Snapshot) { s.Seen.Claimed = new("") })
			n := deployed(hoststate.NodeError, func(n *hoststate.Node) { n.Name, n.Instance = "site~node-1", instance })
			s.Seen.Node = &n
			d := hoststate.Plan(now, s)
			if !own {
				assert.Empty(t, d.Do)
				assert.Equal(t, metal3v1.EventNodeKept, d.Tell[0].Reason)
				continue
			}
			require.Equal(t, hoststate.EnterMaintenance, d.Do.Call, "Ironic deletes such a node only there")
			n.Maintenance = true
			s = d.Known
			s.Seen.Node = &n
			d = hoststate.Plan(now, s)
			assert.Equal(t, hoststate.RemoveNode, d.Do.Call, "or a machine that takes the place of the broken one could not have the name")
			assert.Contains(t, d.Tell[0].Text, "stays as it is")
			assert.Equal(t, hoststate.Gone, d.Step.To)
		}
	})
	t.Run("an Ironic that deletes no available nodes", func(t *testing.T) {
		for state, first := range map[string]hoststate.Call{
			inventory.NodeAvailable: hoststate.EnterMaintenance, hoststate.CleanFailed: hoststate.EnterMaintenance,
			inventory.NodeManageable: hoststate.RemoveNode, inventory.NodeEnroll: hoststate.RemoveNode,
		} {
			s := seen(hoststate.Deleting, admitted, leaving, func(s *hoststate.Snapshot) { s.Seen.Claimed = new("") })
			n := hoststate.Node{UUID: "node", Name: "site~node-1", State: state}
			s.Seen.Node = &n
			d := hoststate.Plan(now, s)
			require.Equal(t, first, d.Do.Call, state)
			if first == hoststate.RemoveNode {
				continue
			}
			n.Maintenance = true
			s = d.Known
			s.Seen.Node = &n
			d = hoststate.Plan(now, s)
			assert.Equal(t, hoststate.RemoveNode, d.Do.Call, state)
			assert.Equal(t, hoststate.Gone, d.Step.To, state)
		}
	})
	t.Run("a node that came back under another UUID goes, too", func(t *testing.T) {
		s := seen(hoststate.Deleting, leaving, func(s *hoststate.Snapshot) { s.Seen.Connected = true })
		require.Equal(t, hoststate.ReadNode, hoststate.Plan(now, s).Do.Call)
		s.Seen.Err, s.Seen.At = inventory.Failf(inventory.ProblemNotFound, "gone"), hoststate.ReadNode
		d := hoststate.Plan(now, s)
		require.Equal(t, hoststate.Find, d.Do.Call)
		s = d.Known
		s.Seen.Found = new("other")
		assert.Equal(t, hoststate.Action{Call: hoststate.ReadNode, Node: "other"}, hoststate.Plan(now, s).Do)
		s.Seen.Found = new("")
		assert.Equal(t, hoststate.Gone, hoststate.Plan(now, s).Step.To)
	})
}

// TestTheDeletionOfADetachedHostLeavesItsMachine deletes a host that is detached, as users of metal3 do to have another system go on with a machine that is in use.
func TestTheDeletionOfADetachedHostLeavesItsMachine(t *testing.T) {
	detached := func(s *hoststate.Snapshot) {
		s.Facts.Deleting, s.Facts.Detached = true, true
	}
	used := deployed(hoststate.Active, func(n *hoststate.Node) { n.Driver, n.PowerBy, n.Power = "redfish", "redfish", hoststate.PowerOn })
	s := seen(hoststate.Deprovisioning, admitted, detached, func(s *hoststate.Snapshot) { s.Seen.Node = &used })
	d := hoststate.Plan(now, s)
	assert.Empty(t, d.Do, "nothing is ended, and nothing cleaned")
	require.NotNil(t, d.Then)
	assert.Equal(t, hoststate.Done, d.Then.Event)
	s = seen(hoststate.PoweringOff, admitted, detached, func(s *hoststate.Snapshot) { s.Seen.Node = &used })
	assert.Equal(t, hoststate.Deleting, hoststate.Plan(now, s).Step.To, "the power is left alone")

	s = seen(hoststate.Deleting, admitted, detached, func(s *hoststate.Snapshot) {
		s.Seen.Node, s.Seen.Claimed = &used, new("node node belongs to host ns/other")
	})
	d = hoststate.Plan(now, s)
	assert.Empty(t, d.Do, "the node of another host stays")
	assert.Equal(t, hoststate.Gone, d.Step.To)
	s.Seen.Claimed = new("")
	d = hoststate.Plan(now, s)
	require.Equal(t, hoststate.Action{Call: hoststate.EnterMaintenance, Node: "node"}, d.Do, "Ironic deletes a node in use only there")
	s = d.Known
	require.Equal(t, hoststate.ReadNode, hoststate.Plan(now, s).Do.Call)
	used.Maintenance = true
	s.Seen.Node = &used
	d = hoststate.Plan(now, s)
	assert.Equal(t, hoststate.Action{Call: hoststate.RemoveNode, Node: "node"}, d.Do)
	assert.Equal(t, hoststate.Gone, d.Step.To)
}

// TestADetachedHostDelaysItsDeletion has the value by which users of metal3 keep a host until its machine may be cleaned.
func TestADetachedHostDelaysItsDeletion(t *testing.T) {
	delayed := func(state hoststate.State, value string) hoststate.Facts {
		return seen(state, func(s *hoststate.Snapshot) {
			s.Host.DeletionTimestamp = &metav1.Time{Time: now}
			s.Host.Annotations = map[string]string{metal3v1.DetachedAnnotation: value}
			s.Facts = hoststate.FactsOf(s.Host)
		}).Facts
	}
	const delay = `{"deleteAction": "delay"}`
	assert.Equal(t, hoststate.Detached, hoststate.EventOf(hoststate.Provisioned, delayed(hoststate.Provisioned, delay)))
	for _, value := range []string{"", "true", `{"deleteAction": "delete"}`, `{"deleteAction": 1}`, "null"} {
		assert.Equal(t, hoststate.DeletionRequested, hoststate.EventOf(hoststate.Provisioned, delayed(hoststate.Provisioned, value)), value)
	}
	assert.Equal(t, hoststate.DeletionRequested, hoststate.EventOf(hoststate.Available, delayed(hoststate.Available, delay)), "no machine in use waits")
	d := hoststate.Plan(now, seen(hoststate.Provisioned, func(s *hoststate.Snapshot) {
		s.Host.DeletionTimestamp, s.Facts.Detached, s.NodeID = &metav1.Time{Time: now}, true, ""
	}))
	require.NotNil(t, d.Then)
	assert.Contains(t, d.Then.Message, "delays the deletion")
}

// TestTheNodeOfADetachedHostGoesAndComesBack detaches hosts: Ironic would go on to enforce the power of machines that others switch.
func TestTheNodeOfADetachedHostGoesAndComesBack(t *testing.T) {
	for _, state := range []hoststate.State{hoststate.Available, hoststate.ExternallyProvisioned, hoststate.Provisioned} {
		s := seen(state, admitted, func(s *hoststate.Snapshot) {
			s.Facts.Detached, s.Facts.Unverified, s.Facts.Revoked = true, true, true
			s.Host.Status.ErrorType = metal3v1.PowerManagementError
		})
		n := deployed(hoststate.Active, func(n *hoststate.Node) { n.Driver, n.PowerBy, n.Locked = "redfish", "redfish", true })
		s.Seen.Node, s.Seen.Claimed = &n, new("")
		d := hoststate.Plan(now, s)
		assert.Empty(t, d.Do, "%q: what Ironic does is waited for", state)
		assert.Equal(t, metal3v1.ReasonNodeBusy, d.Then.Reason)
		assert.NotEqual(t, metal3v1.OperationalStatusDetached, d.Status(now).OperationalStatus)
		n.Locked = false
		d = hoststate.Plan(now, s)
		require.Equal(t, hoststate.Action{Call: hoststate.EnterMaintenance, Node: "node"}, d.Do, "%q", state)
		n.Maintenance = true
		s = d.Known
		s.Seen.Node = &n
		d = hoststate.Plan(now, s)
		require.Equal(t, hoststate.Action{Call: hoststate.RemoveNode, Node: "node"}, d.Do)
		gone := s
		gone.Seen.Err, gone.Seen.At = inventory.Failf(inventory.ProblemNotFound, "gone"), hoststate.RemoveNode
		for _, after := range []hoststate.Snapshot{d.Known, gone} {
			d := hoststate.Plan(now, after)
			require.NotNil(t, d.Then)
			status := d.Status(now)
			assert.Equal(t, metal3v1.OperationalStatusDetached, status.OperationalStatus)
			assert.Equal(t, metal3v1.ProvisioningState(state), status.Provisioning.State)
			assert.Empty(t, status.Provisioning.ID)
			assert.Empty(t, status.ErrorType)
			for _, kind := range []string{metal3v1.ConditionReady, metal3v1.ConditionPowerControl} {
				c := meta.FindStatusCondition(status.Conditions, kind)
				require.NotNil(t, c)
				assert.Equal(t, metav1.ConditionFalse, c.Status)
				assert.Equal(t, metal3v1.ReasonDetached, c.Reason)
			}
		}
		assert.Equal(t, hoststate.CredentialsArrived, hoststate.EventOf(state, hoststate.Facts{PowerControl: true}), "a host that is managed again gets a node")
	}
	t.Run("a node that stays after all leaves the maintenance", func(t *testing.T) {
		for _, state := range []hoststate.State{hoststate.Available, hoststate.ExternallyProvisioned, hoststate.Provisioned, hoststate.Deprovisioning} {
			n := deployed(hoststate.Active, func(n *hoststate.Node) {
				n.UUID, n.Driver, n.PowerBy, n.Maintenance, n.Leaving = "node", "redfish", "redfish", true, true
			})
			s := seen(state, admitted, func(s *hoststate.Snapshot) {
				s.Seen.Node, s.Facts.External = &n, state == hoststate.ExternallyProvisioned
			})
			d := hoststate.Plan(now, s)
			assert.Equal(t, hoststate.Action{Call: hoststate.LeaveMaintenance, Node: "node"}, d.Do, "%q", state)
			assert.Nil(t, d.Known.Seen.Node, "it is read again")
			n.Leaving = false
			assert.NotEqual(t, hoststate.LeaveMaintenance, hoststate.Plan(now, s).Do.Call, "%q: the maintenance of an administrator stays", state)
		}
	})
	t.Run("a deletion looks for no node that another cluster may have made", func(t *testing.T) {
		d := hoststate.Plan(now, seen(hoststate.Deleting, func(s *hoststate.Snapshot) {
			s.Facts.Deleting, s.Facts.Detached, s.NodeID, s.Host.Status.Provisioning.ID = true, true, "", ""
		}))
		assert.Empty(t, d.Do)
		assert.Equal(t, hoststate.Gone, d.Step.To)
	})
}

func TestALostNodeOfAMachineInUseIsMadeAnew(t *testing.T) {
	s := seen(hoststate.Provisioned, admitted, func(s *hoststate.Snapshot) {
		s.Seen.Err, s.Seen.At = inventory.Failf(inventory.ProblemNotFound, "gone"), hoststate.ReadNode
	})
	d := hoststate.Plan(now, s)
	status := d.Status(now)
	assert.Equal(t, metal3v1.StateProvisioned, status.Provisioning.State)
	assert.Empty(t, status.Provisioning.ID)
	s = seen(hoststate.Provisioned, func(s *hoststate.Snapshot) {
		s.Host.Status.Provisioning.ID, s.NodeID, s.Facts.NodeKnown = "", "", false
		s.Seen.Connected = true
	})
	assert.Equal(t, hoststate.Find, hoststate.Plan(now, s).Do.Call)
	s.Seen.Found, s.Seen.Taken = new(""), new("")
	d = hoststate.Plan(now, s)
	assert.Equal(t, hoststate.EnrolNode, d.Do.Call)
	s.Seen.Taken = new("MAC 52:54:00:00:00:01 is reserved for host ns/other")
	d = hoststate.Plan(now, s)
	assert.Equal(t, metal3v1.ReasonMachineUsedByOther, d.Then.Reason, "no node is made for another one's machine")
	assert.Equal(t, hoststate.Provisioned, d.Step.To)
}

// TestAUsedMachineIsCleanedAlsoWhereIronicHasLostItsNode takes the image from a machine, or deletes its host, when Ironic has lost its database.
func TestAUsedMachineIsCleanedAlsoWhereIronicHasLostItsNode(t *testing.T) {
	used := func(s *hoststate.Snapshot) {
		s.Host.Status.OperationHistory.Provision = metal3v1.OperationMetric{Start: &metav1.Time{Time: now}, End: &metav1.Time{Time: now}}
	}
	lost := func(s *hoststate.Snapshot) {
		s.Host.Status.Provisioning.ID, s.NodeID, s.Facts.NodeKnown = "", "", false
		s.Seen.Connected = true
	}
	gone := func(s *hoststate.Snapshot) {
		s.Seen.Err, s.Seen.At = inventory.Failf(inventory.ProblemNotFound, "gone"), hoststate.ReadNode
	}
	t.Run("its node is made anew and registered", func(t *testing.T) {
		s := seen(hoststate.Deprovisioning, admitted, used, gone)
		s.Memory.Asked = hoststate.AskedUndeploy
		d := hoststate.Plan(now, s)
		assert.Equal(t, hoststate.AskedNothing, d.Known.Memory.Asked, "that was asked for the lost node")
		assert.Equal(t, hoststate.Deprovisioning, d.Step.To)
		assert.Equal(t, metal3v1.ReasonNodeNotFound, d.Then.Reason)
		assert.Empty(t, d.Status(now).Provisioning.ID)
		for _, deleting := range []bool{false, true} {
			s := seen(hoststate.Deprovisioning, used, lost)
			s.Facts.Deleting = deleting
			assert.Equal(t, hoststate.Find, hoststate.Plan(now, s).Do.Call)
			s.Seen.Found, s.Seen.Taken = new(""), new("")
			s = hoststate.Plan(now, s).Known
			s.NodeID, s.Seen.Node, s.Seen.Claimed = "made", &hoststate.Node{UUID: "made", State: inventory.NodeEnroll}, new("")
			d = hoststate.Plan(now, s)
			assert.Equal(t, hoststate.WriteNode, d.Do.Call, "a node gets the credentials before anything else")
			s.Seen.Claimed = new("node made belongs to host ns/other")
			d = hoststate.Plan(now, s)
			assert.Equal(t, deleting, d.Step.To == hoststate.PoweringOff, "a deletion does without a node that is another one's")
		}
	})
	t.Run("a deletion does without credentials, and without Ironic where the user says so", func(t *testing.T) {
		s := seen(hoststate.Deprovisioning, used, lost)
		s.Facts.Deleting, s.Secret = true, hoststate.Secret{}
		assert.Equal(t, hoststate.PoweringOff, hoststate.Plan(now, s).Step.To)
		s = seen(hoststate.Deprovisioning, used, lost)
		s.Facts.Deleting, s.Seen.Connected = true, false
		s.Host.Annotations = map[string]string{metal3v1.KeepNodeAnnotation: "true"}
		d := hoststate.Plan(now, s)
		assert.Empty(t, d.Do)
		assert.Equal(t, hoststate.Done, d.Then.Event)
	})
	t.Run("one that was never deployed needs no cleaning", func(t *testing.T) {
		assert.Equal(t, hoststate.Registering, hoststate.Plan(now, seen(hoststate.Deprovisioning, admitted, gone)).Step.To)
		assert.Equal(t, hoststate.Available, hoststate.Plan(now, seen(hoststate.Deprovisioning, lost)).Step.To)
	})
}

// TestANodeThatIsMadeAnewIsRegisteredEachTime has Ironic lose its database once more after the adoption of a machine, and while the management controller does not answer.
func TestANodeThatIsMadeAnewIsRegisteredEachTime(t *testing.T) {
	s := seen(hoststate.Provisioned, admitted, func(s *hoststate.Snapshot) {
		s.Memory.Asked = hoststate.AskedAdopt
		s.Seen.Err, s.Seen.At = inventory.Failf(inventory.ProblemNotFound, "gone"), hoststate.ReadNode
	})
	memory := hoststate.Plan(now, s).Known.Memory
	made := func(change ...func(*hoststate.Node)) *hoststate.Node {
		a, err := hoststate.AccessTo(*s.Host.Spec.BMC, "admin", "hush")
		require.NoError(t, err)
		n := hoststate.Node{UUID: "made", Name: "site~node-1", Driver: a.Driver, Info: a.Info, State: inventory.NodeEnroll}
		for _, c := range change {
			c(&n)
		}
		return &n
	}
	s = seen(hoststate.Provisioned, func(s *hoststate.Snapshot) {
		s.Host.Status.Provisioning.ID, s.NodeID, s.Facts.NodeKnown = "", "made", false
		s.Memory, s.Seen.Connected, s.Seen.Claimed, s.Seen.Node = memory, true, new(""), made()
	})
	d := hoststate.Plan(now, s)
	assert.Equal(t, hoststate.WriteNode, d.Do.Call, "the credentials of the new node are verified, too")

	s = seen(hoststate.Provisioned, admitted, func(s *hoststate.Snapshot) {
		s.Memory.Asked = hoststate.AskedManage
		s.Seen.Node = made(func(n *hoststate.Node) { n.LastError = "the management controller does not answer" })
	})
	for _, method := range []*metal3v1.CustomDeploy{nil, {Method: "install_x"}} {
		s.Host.Status.Provisioning.CustomDeploy = method
		d = hoststate.Plan(now, s)
		require.NotNil(t, d.Then)
		assert.Equal(t, metal3v1.ReasonBMCUnreachable, d.Then.Reason, "the host says what its adoption waits for")
		assert.Equal(t, hoststate.Provisioned, d.Step.To)
		again := s
		again.Memory = d.Known.Memory
		assert.Equal(t, hoststate.Action{Call: hoststate.SetProvision, Node: "node", Target: hoststate.AskManage}, plain(hoststate.Plan(now, again).Do))
	}
}

// plain is an action without what was known when it was planned.
func plain(a hoststate.Action) hoststate.Action {
	return hoststate.Action{Call: a.Call, Node: a.Node, Target: a.Target}
}

func TestAMachineOfAnotherOperatorsMethodRunsOnWhereItsNodeIsMadeAnew(t *testing.T) {
	s := seen(hoststate.Provisioned, admitted)
	s.Host.Spec.Image, s.Host.Spec.CustomDeploy = nil, &metal3v1.CustomDeploy{Method: "install_x"}
	s.Host.Status.Provisioning.CustomDeploy = s.Host.Spec.CustomDeploy
	n := deployed("manageable", func(n *hoststate.Node) {
		a, err := hoststate.AccessTo(*s.Host.Spec.BMC, "admin", "")
		require.NoError(t, err)
		n.Driver, n.Info, n.Power, n.Instance, n.Deployment = a.Driver, a.Info, hoststate.PowerDown, "", nil
	})
	s.Seen.Node = &n
	d := hoststate.Plan(now, s)
	assert.Equal(t, hoststate.Action{Call: hoststate.SetPower, Node: "node", Target: hoststate.PowerOn}, d.Do)
	require.NotNil(t, d.Then)
	assert.Empty(t, d.Then.Kind, "nothing tells its user to remove spec.customDeploy, which would end the deployment")
}

// TestEveryPassEnds answers the actions of passes at random: each pass ends after a few actions, with a step that is known.
func TestEveryPassEnds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	errs := []inventory.Problem{inventory.ProblemNotFound, inventory.ProblemBusy, inventory.ProblemFull, inventory.ProblemRefused, inventory.ProblemUnreachable}
	states := []string{
		"enroll", "verifying", "manageable", "available", "active", "deploying", "deploy failed", "clean wait", "clean failed", "inspect wait", "inspect failed",
		"error", hoststate.Adopting, hoststate.AdoptFailed,
	}
	for range 20000 {
		s := seen(hoststate.States()[r.IntN(len(hoststate.States()))], func(s *hoststate.Snapshot) {
			s.Facts = hoststate.Facts{
				Deleting: r.IntN(3) == 0, PowerControl: r.IntN(2) == 0, Unverified: r.IntN(3) == 0, NodeKnown: r.IntN(2) == 0, Revoked: r.IntN(4) == 0, Detached: r.IntN(6) == 0,
				Deployable: r.IntN(3) == 0, Reinspect: r.IntN(4) == 0, NeedsInspection: r.IntN(3) == 0,
			}
			if !s.Facts.NodeKnown {
				s.NodeID, s.Host.Status.Provisioning.ID = "", ""
			}
			if r.IntN(4) == 0 {
				s.Host.Annotations = map[string]string{metal3v1.KeepNodeAnnotation: "true"}
			}
		})
		state, actions := s.State, 0
		for ; ; actions++ {
			require.Less(t, actions, 30, "a pass in %q with %+v", state, s.Facts)
			d := hoststate.Plan(now, s)
			if d.Do.Call == "" {
				require.True(t, d.Then != nil || d.Err != nil, "%q", state)
				break
			}
			if r.IntN(8) == 0 {
				s.Seen.Err, s.Seen.At = inventory.Failf(errs[r.IntN(len(errs))], "no"), d.Do.Call
				continue
			}
			if d.Then != nil {
				require.NotEmpty(t, d.Step.To)
				break
			}
			s = d.Known
			answer(r, &s, d.Do, states[r.IntN(len(states))])
		}
	}
}

// answer completes a snapshot with what an action leads to.
func answer(r *rand.Rand, s *hoststate.Snapshot, a hoststate.Action, state string) {
	text := []string{"", "no"}[r.IntN(8)/7]
	switch a.Call { //nolint:exhaustive // the others lead to nothing that is read
	case hoststate.Connect:
		s.Seen.Connected = true
	case hoststate.Hold:
		s.Seen.Held = map[string]string{a.Node: text}
	case hoststate.Claim:
		s.Seen.Claimed = &text
	case hoststate.CheckTaken:
		s.Seen.Taken = &text
	case hoststate.Find:
		s.Seen.Found = new([]string{"", "found"}[r.IntN(2)])
	case hoststate.EnrolNode:
		s.NodeID = "made"
	case hoststate.ReadNode, hoststate.ExamineNode:
		n := deployed(state, func(n *hoststate.Node) {
			n.UUID, n.Power = a.Node, []string{"", hoststate.PowerOn, hoststate.PowerDown}[r.IntN(3)]
			n.Driver = []string{n.Driver, "redfish"}[r.IntN(2)]
			n.Maintenance = s.State == hoststate.Deleting && r.IntN(8) > 0 // it was asked for
		})
		s.Seen.Node = &n
	case hoststate.ReadReport:
		s.Seen.Reported = true
		if r.IntN(2) == 0 {
			s.Seen.Report = &inventory.Report{Cut: []string{"nics"}}
		}
	case hoststate.ReadConfig:
		s.Seen.Config = &osimage.ConfigDrive{}
	case hoststate.ConfirmHost:
		s.Seen.Unchanged = true
	}
}

func TestAnAgentThatTookItsTokenHasItsTimeToReport(t *testing.T) {
	s := seen(hoststate.Provisioning, admitted)
	s.Memory.Asked = hoststate.AskedDeploy
	waits := deployed(hoststate.DeployWait, func(n *hoststate.Node) { n.Driver, n.PowerBy, n.TokenTaken = "redfish", "redfish", true })
	s.Seen.Node = &waits
	d := hoststate.Plan(now, s)
	assert.Empty(t, d.Do, "it looks at its disks first")
	s.Memory = d.Known.Memory
	assert.Empty(t, hoststate.Plan(now.Add(119*time.Second), s).Do)

	d = hoststate.Plan(now.Add(2*time.Minute), s)
	assert.Equal(t, hoststate.SetPower, d.Do.Call)
	assert.Equal(t, hoststate.Rebooting, d.Do.Target)
	require.Len(t, d.Tell, 1)
	assert.Equal(t, metal3v1.EventAgentSilent, d.Tell[0].Reason)
	s.Memory = d.Known.Memory
	assert.Empty(t, hoststate.Plan(now.Add(2*time.Minute), s).Do, "the next agent has its time, too")

	s.Memory.Token = now
	accepted := waits
	accepted.TokenTaken = false
	s.Seen.Node = &accepted
	d = hoststate.Plan(now.Add(time.Hour), s)
	assert.Empty(t, d.Do)
	assert.Zero(t, d.Known.Memory.Token)
}

func TestADeploymentThatIronicWaitsForWithoutEndGoesOn(t *testing.T) {
	begin := func(t *testing.T, state hoststate.State, node hoststate.Node) hoststate.Snapshot {
		t.Helper()
		s := seen(state, admitted)
		s.Memory.Asked = hoststate.AskedDeploy
		a, err := hoststate.AccessTo(*s.Host.Spec.BMC, "admin", "hush")
		require.NoError(t, err)
		node.Driver, node.Info, node.PowerBy, node.Untimed, node.Touched = "redfish", a.Info, "redfish", true, "then"
		s.Seen.Node = &node
		d := hoststate.Plan(now, s)
		require.Empty(t, d.Do, "it boots first")
		s.Memory = d.Known.Memory
		return s
	}
	t.Run("a machine is restarted", func(t *testing.T) {
		s := begin(t, hoststate.Provisioning, deployed(hoststate.DeployWait))
		s.Seen.Node.Touched = "a heartbeat"
		d := hoststate.Plan(now.Add(29*time.Minute), s)
		s.Memory = d.Known.Memory
		assert.Empty(t, hoststate.Plan(now.Add(58*time.Minute), s).Do, "a heartbeat gives it its time anew")

		d = hoststate.Plan(now.Add(59*time.Minute), s)
		assert.Equal(t, hoststate.SetPower, d.Do.Call)
		assert.Equal(t, hoststate.Rebooting, d.Do.Target)
		require.Len(t, d.Tell, 1)
		assert.Equal(t, metal3v1.EventAgentSilent, d.Tell[0].Reason)
		require.NotNil(t, d.Then)
		assert.Equal(t, metal3v1.ReasonDeploymentFailed, d.Then.Reason)
		assert.Equal(t, "The image was not deployed: timeout: the ramdisk did not report in 30m. It is tried again.", d.Then.Message)

		s.Memory, s.Host.Status.ErrorType = d.Known.Memory, metal3v1.ProvisioningError
		assert.Empty(t, hoststate.Plan(now.Add(60*time.Minute), s).Do, "the next ramdisk has its time, too")
	})
	t.Run("a cleaning fails", func(t *testing.T) {
		s := begin(t, hoststate.Provisioning, deployed(hoststate.CleanWait, func(n *hoststate.Node) { n.Instance, n.Deployment = "", nil }))
		s.Memory.Asked = hoststate.AskedProvide
		d := hoststate.Plan(now.Add(30*time.Minute), s)
		assert.Equal(t, hoststate.SetProvision, d.Do.Call)
		assert.Equal(t, "abort", d.Do.Target)
		assert.Equal(t, hoststate.AskedProvide, d.Known.Memory.Asked)

		s.Memory, s.Seen.Node.State, s.Seen.Node.LastError = d.Known.Memory, "clean failed", "By request, the clean operation was aborted"
		d = hoststate.Plan(now.Add(31*time.Minute), s)
		require.NotNil(t, d.Then)
		assert.Equal(t, hoststate.Failed, d.Then.Event, "and is told as one that Ironic times out is")
		assert.Equal(t, metal3v1.ReasonCleaningFailed, d.Then.Reason)
	})
}

func TestADeletionGivesUpACleaningThatFailsAgain(t *testing.T) {
	s := seen(hoststate.Deprovisioning, admitted)
	s.Host.Status.ErrorType, s.Facts.Deleting = metal3v1.ProvisioningError, true
	s.Memory = hoststate.Memory{Asked: hoststate.AskedProvide, Failures: 1}
	node := deployed("clean failed", func(n *hoststate.Node) { n.Instance, n.Deployment = "", nil })
	s.Seen.Node = &node
	d := hoststate.Plan(now, s)
	require.NotNil(t, d.Then)
	assert.Equal(t, hoststate.Failed, d.Then.Event)

	s.Memory.Failures = 2
	d = hoststate.Plan(now, s)
	require.NotNil(t, d.Then)
	assert.Equal(t, hoststate.GaveUp, d.Then.Event)
}

// TestAMachineThatIsNeverSwitchedOffIsRegisteredAsSuch sets spec.disablePowerOff of a host whose node is in use: its management controller goes off with it.
func TestAMachineThatIsNeverSwitchedOffIsRegisteredAsSuch(t *testing.T) {
	s := seen(hoststate.Provisioned, admitted)
	s.Seen.Node = addressed(t, s, hoststate.Active)
	s.Seen.Node.Power, s.Seen.Node.Instance = hoststate.PowerOn, string(s.Host.UID)
	s.Host.Spec.DisablePowerOff = true
	d := hoststate.Plan(now, s)
	require.NotNil(t, d.Then)
	assert.True(t, d.Then.Settled, "an Ironic that cannot be told so is not asked again and again")
	s.Seen.Node.KeepOn = new(false)
	d = hoststate.Plan(now, s)
	require.NotNil(t, d.Then)
	assert.Equal(t, hoststate.CredentialsArrived, d.Then.Event)
	s.Facts.Unverified, s.Seen.Claimed = true, new("")
	d = hoststate.Plan(now, s)
	require.Equal(t, hoststate.WriteNode, d.Do.Call)
	assert.True(t, d.Do.Access.KeepOn)
}

// addressed is a node that has the address of its host.
func addressed(t *testing.T, s hoststate.Snapshot, state string) *hoststate.Node {
	t.Helper()
	a, err := hoststate.AccessTo(*s.Host.Spec.BMC, "admin", "hush")
	require.NoError(t, err)
	n := &hoststate.Node{UUID: "node", State: state, Driver: a.Driver, Info: a.Info, Boot: "ipxe"}
	if len(a.Boot) > 0 {
		n.Boot = a.Boot[0]
	}
	return n
}

// TestAnAddressThatChangesIsUsedWhateverTheHostDoes has a user correct spec.bmc.address while the Secret stays: the machine does not boot from the network, or speaks another
// protocol since its firmware was updated.
func TestAnAddressThatChangesIsUsedWhateverTheHostDoes(t *testing.T) {
	for name, address := range map[string]string{
		"another machine": "redfish://192.0.2.2/redfish/v1/Systems/1", "another protocol": "ipmi://192.0.2.1", "virtual media": "redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1",
	} {
		t.Run("an inspection ends, and begins with "+name, func(t *testing.T) {
			for state, ask := range map[string]string{hoststate.InspectWait: "abort", hoststate.InspectFailed: "manage"} {
				s := seen(hoststate.Inspecting, admitted, func(s *hoststate.Snapshot) { s.Host.Status.HardwareDetails = nil })
				s.Seen.Node = addressed(t, s, state)
				s.Host.Spec.BMC.Address = address
				s.Facts = hoststate.FactsOf(s.Host)
				d := hoststate.Plan(now, s)
				assert.Equal(t, hoststate.Action{Call: hoststate.SetProvision, Node: "node", Target: ask}, d.Do, state)
				s.Seen.Node.State = inventory.NodeManageable
				d = hoststate.Plan(now, s)
				assert.Empty(t, d.Do)
				assert.Equal(t, hoststate.Registering, d.Step.To)
				assert.Nil(t, d.Known.Good.Reference, "the new address is verified")
			}
		})
		for state, in := range map[hoststate.State]string{
			hoststate.Available: "manageable", hoststate.Provisioned: "active", hoststate.Provisioning: "deploy failed", hoststate.Deprovisioning: "clean failed",
		} {
			if name == "virtual media" && in != "manageable" {
				continue // Ironic changes no boot interface there
			}
			t.Run(string(state)+" with "+name, func(t *testing.T) {
				s := seen(state, admitted, func(s *hoststate.Snapshot) { s.Host.Status.ErrorType = metal3v1.ProvisioningError })
				s.Seen.Node = addressed(t, s, in)
				s.Host.Spec.BMC.Address = address
				d := hoststate.Plan(now, s)
				if d.Then != nil { // the next pass registers the node
					require.Equal(t, hoststate.CredentialsArrived, d.Then.Event)
					return
				}
				require.Equal(t, hoststate.Claim, d.Do.Call)
				s = d.Known
				s.Seen.Claimed = new("")
				d = hoststate.Plan(now, s)
				require.Equal(t, hoststate.WriteNode, d.Do.Call)
			})
		}
	}
	s := seen(hoststate.Inspecting, admitted, func(s *hoststate.Snapshot) { s.Host.Status.HardwareDetails = nil })
	s.Facts = hoststate.FactsOf(s.Host)
	s.Seen.Node = addressed(t, s, inventory.NodeManageable)
	assert.Equal(t, hoststate.ReadReport, hoststate.Plan(now, s).Do.Call, "an address that is used already changes nothing")
}

func TestARamdiskThatIronicWaitsForWithoutEndHasItsTimeToReport(t *testing.T) {
	begin := func(t *testing.T, untimed bool) hoststate.Snapshot {
		t.Helper()
		s := seen(hoststate.Inspecting, admitted)
		s.Host.Status.HardwareDetails = nil
		s.Facts = hoststate.FactsOf(s.Host)
		s.Seen.Node = addressed(t, s, hoststate.InspectWait)
		s.Seen.Node.Untimed = untimed
		d := hoststate.Plan(now, s)
		require.Empty(t, d.Do, "it boots first")
		s.Memory = d.Known.Memory
		return s
	}
	t.Run("Ironic ends the inspection of other nodes by itself", func(t *testing.T) {
		assert.Empty(t, hoststate.Plan(now.Add(24*time.Hour), begin(t, false)).Do)
	})
	s := begin(t, true)
	assert.Empty(t, hoststate.Plan(now.Add(29*time.Minute), s).Do)
	s.Seen.Node.Locked = true
	d := hoststate.Plan(now.Add(30*time.Minute), s)
	assert.Empty(t, d.Do, "Ironic takes the report, or ends the inspection")
	s.Memory, s.Seen.Node.Locked = d.Known.Memory, false

	d = hoststate.Plan(now.Add(30*time.Minute), s)
	assert.Equal(t, hoststate.Action{Call: hoststate.SetProvision, Node: "node", Target: "abort"}, d.Do)
	require.NotNil(t, d.Then)
	assert.Equal(t, hoststate.Failed, d.Then.Event)
	assert.Equal(t, metal3v1.InspectionError, d.Then.Kind)
	assert.Equal(t, metal3v1.ReasonInspectionFailed, d.Then.Reason)
	assert.Equal(t, "The inspection failed: timeout: the ramdisk did not report in 30m. It is tried again.", d.Then.Message)

	s.Memory, s.Host.Status.ErrorType = d.Known.Memory, metal3v1.InspectionError
	s.Seen.Node = addressed(t, s, hoststate.InspectFailed)
	s.Seen.Node.Untimed, s.Seen.Node.LastError = true, "Inspection was aborted by request."
	d = hoststate.Plan(now.Add(31*time.Minute), s)
	assert.Equal(t, hoststate.StartInspection, d.Do.Call, "the error is told once")
	assert.Zero(t, d.Known.Memory.Ramdisk, "the next ramdisk has its time, too")
}

// TestCredentialsAreRenewedWhileAnImageComesOrGoes rotates the Secret, or moves the management controller, of a host whose deployment or removal failed for lack of it: the
// deployment, which could not be removed either, need not be given up.
func TestCredentialsAreRenewedWhileAnImageComesOrGoes(t *testing.T) {
	node := func(state, lastError string, info map[string]string) *hoststate.Node {
		n := deployed(state, func(n *hoststate.Node) {
			n.Driver, n.PowerBy, n.Info, n.LastError, n.Power = "redfish", "redfish", info, lastError, hoststate.PowerOn
		})
		return &n
	}
	for name, c := range map[string]struct {
		state      hoststate.State
		in         string
		unverified bool
		then       hoststate.Call
	}{
		"another password while an image is deployed":       {hoststate.Provisioning, "deploy failed", true, hoststate.ReadConfig},
		"another address while an image is deployed":        {hoststate.Provisioning, "deploy failed", false, hoststate.ReadConfig},
		"another password while a deployment is ended":      {hoststate.Deprovisioning, "error", true, hoststate.ConfirmHost},
		"another address while a machine cannot be cleaned": {hoststate.Deprovisioning, "error", false, hoststate.ConfirmHost},
	} {
		t.Run(name, func(t *testing.T) {
			s := seen(c.state, admitted, func(s *hoststate.Snapshot) { s.Host.Status.ErrorType = metal3v1.ProvisioningError })
			a, err := hoststate.AccessTo(*s.Host.Spec.BMC, "admin", "hush")
			require.NoError(t, err)
			info := a.Info
			if s.Facts.Unverified = c.unverified; !c.unverified {
				info = map[string]string{"redfish_address": "https://192.0.2.9"}
			}
			s.Seen.Node = node(c.in, "HTTP 401", info)
			d := hoststate.Plan(now, s)
			require.Equal(t, hoststate.Claim, d.Do.Call)
			s = d.Known
			s.Seen.Claimed = new("")
			d = hoststate.Plan(now, s)
			require.Equal(t, hoststate.WriteNode, d.Do.Call)
			assert.Equal(t, "hush", d.Do.Access.Password)

			t.Run("what Ironic did not take is written again", func(t *testing.T) {
				s := d.Known
				s.Seen.Err, s.Seen.At = inventory.Failf(inventory.ProblemBusy, "locked"), hoststate.WriteNode
				assert.Equal(t, hoststate.AskedNothing, hoststate.Plan(now, s).Known.Memory.Asked)
			})
			s = d.Known
			s.Seen.Node = node(c.in, "HTTP 401", a.Info)
			d = hoststate.Plan(now, s)
			require.Equal(t, hoststate.Action{Call: hoststate.SetPower, Node: "node", Target: hoststate.PowerOn}, d.Do, "the power that it has")

			s = d.Known
			refused := s
			refused.Seen.Node = node(c.in, "HTTP 401", a.Info)
			d = hoststate.Plan(now, refused)
			require.NotNil(t, d.Then)
			assert.Equal(t, metal3v1.ReasonBMCCredentialsRefused, d.Then.Reason)
			assert.Equal(t, c.state, d.Step.To)
			refused.Facts.Deleting = true
			assert.Equal(t, c.state == hoststate.Deprovisioning, hoststate.Plan(now, refused).Do.Call == hoststate.ConfirmHost, "a deletion does without")

			s.Seen.Node = node(c.in, "", a.Info)
			d = hoststate.Plan(now, s)
			require.NotNil(t, d.Then)
			assert.Equal(t, c.state, d.Step.To, "the state stays")
			assert.Equal(t, "bmc", d.Known.Good.Reference.Name)
			assert.Equal(t, metal3v1.ProvisioningError, d.Status(now).ErrorType, "what failed is tried again at once")

			s = d.Known
			s.Facts.Unverified, s.Seen = false, hoststate.Seen{}
			admitted(&s)
			s.Seen.Node = node(c.in, "", a.Info)
			assert.Equal(t, c.then, hoststate.Plan(now, s).Do.Call)
		})
	}
	t.Run("not while Ironic works on the node", func(t *testing.T) {
		s := seen(hoststate.Provisioning, admitted, func(s *hoststate.Snapshot) { s.Facts.Unverified = true })
		s.Seen.Node = node("wait call-back", "", nil)
		d := hoststate.Plan(now, s)
		assert.Empty(t, d.Do)
		assert.Equal(t, metal3v1.ReasonProvisioning, d.Then.Reason)
	})
}
