// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package powerplan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

const blue = "tenant/blue"

// host is one that is on and can be switched, changed.
func host(name string, change ...func(*metal3v1.BareMetalHost)) *metal3v1.BareMetalHost {
	h := &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name},
		Spec:       metal3v1.BareMetalHostSpec{Online: true, BMC: &metal3v1.BMCDetails{Address: "ipmi://192.0.2.1", CredentialsName: "bmc"}},
		Status:     metal3v1.BareMetalHostStatus{PoweredOn: true},
	}
	for _, one := range change {
		one(h)
	}
	return h
}

func hibernates(h *metal3v1.BareMetalHost) {
	h.Spec.Online, h.Status.PoweredOn = false, false
	h.Annotations = map[string]string{agentv1.BMHHibernatesAnnotation: blue}
}

func cluster(power hivev1.PowerState, conditions ...hivev1.Condition) *hivev1.ClusterDeployment {
	return &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "blue"}, Spec: hivev1.ClusterDeploymentSpec{PowerState: power}, Status: hivev1.ClusterDeploymentStatus{Conditions: conditions},
	}
}

// node is a machine whose Node is Ready.
func node(name string, h *metal3v1.BareMetalHost) Machine {
	return Machine{Agent: name, Node: name, Host: h, NodeReady: true}
}

func TestMachinesOfAClusterThatHibernates(t *testing.T) {
	for sentence, test := range map[string]struct {
		given   Machine
		changes bool
		status  corev1.ConditionStatus
		stopped string
		power   string
	}{
		"one that runs is switched off": {
			given: node("a", host("h")), changes: true, status: corev1.ConditionFalse, stopped: "0 of 1 machines are off; a is being switched off",
		},
		"one that was asked to stop is waited for": {
			given: node("a", host("h", hibernates, func(h *metal3v1.BareMetalHost) { h.Status.PoweredOn = true })), status: corev1.ConditionFalse,
			stopped: "0 of 1 machines are off; a is being switched off by BareMetalHost h",
		},
		"one that cannot be switched says why": {
			given: node("a", host("h", hibernates, func(h *metal3v1.BareMetalHost) {
				h.Status.PoweredOn, h.Status.ErrorMessage = true, "credentials refused"
			})), status: corev1.ConditionFalse,
			stopped: "0 of 1 machines are off; a is being switched off by BareMetalHost h (BareMetalHost h: credentials refused)",
		},
		"one without power is waited for until its Node is missed": {
			given: node("a", host("h", hibernates)), status: corev1.ConditionFalse, stopped: "0 of 1 machines are off; a has no power, and is still a Ready node",
		},
		"one that is off and missed is off": {
			given: Machine{Agent: "a", Node: "a", Host: host("h", hibernates)}, status: corev1.ConditionTrue, stopped: "1 of 1 machines are off",
		},
		"one that its user switched off is off, and stays so": {
			given:  Machine{Agent: "a", Node: "a", Host: host("h", func(h *metal3v1.BareMetalHost) { h.Spec.Online, h.Status.PoweredOn = false, false })},
			status: corev1.ConditionTrue, stopped: "1 of 1 machines are off",
		},
		"one that is being installed is not interrupted": {
			given: Machine{Agent: "a", Node: "a", Host: host("h"), Installing: true}, status: corev1.ConditionFalse, stopped: "0 of 1 machines are off; a is being installed",
		},
		"one that another client switches on again is left on": {
			given: node("a", host("h", hibernates, func(h *metal3v1.BareMetalHost) { h.Spec.Online = true })), status: corev1.ConditionTrue, stopped: "0 of 1 machines are off",
			power: "Not stopped and started with the cluster: a: another client switched BareMetalHost h on",
		},
		"one without a host stays on": {
			given: node("a", nil), status: corev1.ConditionTrue, stopped: "0 of 1 machines are off", power: "Not stopped and started with the cluster: a: it has no BareMetalHost",
		},
		"one without a management controller stays on": {
			given: node("a", host("h", func(h *metal3v1.BareMetalHost) { h.Spec.BMC = nil })), status: corev1.ConditionTrue, stopped: "0 of 1 machines are off",
			power: "Not stopped and started with the cluster: a: BareMetalHost h names no management controller",
		},
		"one in use by another controller stays on": {
			given: node("a", host("h", func(h *metal3v1.BareMetalHost) {
				h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "m"}
			})), status: corev1.ConditionTrue,
			stopped: "0 of 1 machines are off", power: "Not stopped and started with the cluster: a: BareMetalHost h is in use by Metal3Machine m",
		},
		"one that may not be switched off stays on": {
			given: node("a", host("h", func(h *metal3v1.BareMetalHost) { h.Spec.DisablePowerOff = true })), status: corev1.ConditionTrue,
			stopped: "0 of 1 machines are off", power: "Not stopped and started with the cluster: a: spec.disablePowerOff of BareMetalHost h is true",
		},
		"one whose host is paused stays on": {
			given:  node("a", host("h", func(h *metal3v1.BareMetalHost) { h.Annotations = map[string]string{metal3v1.PausedAnnotation: ""} })),
			status: corev1.ConditionTrue, stopped: "0 of 1 machines are off", power: "Not stopped and started with the cluster: a: BareMetalHost h has the annotation baremetalhost.metal3.io/paused",
		},
		"one whose host is linked to another Agent, too, stays on": {
			given: Machine{Agent: "a", Node: "a", Host: host("h"), Shared: true}, status: corev1.ConditionTrue, stopped: "0 of 1 machines are off",
			power: "Not stopped and started with the cluster: a: BareMetalHost h is linked to several Agents",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := Plan(Snapshot{Name: blue, Cluster: cluster(hivev1.PowerStateHibernating), Answers: true, Machines: []Machine{test.given}})
			require.Len(t, d.Conditions, 2)
			assert.Equal(t, test.status, d.Conditions[0].Status)
			assert.Equal(t, test.stopped, d.Conditions[0].Message)
			if test.power == "" {
				test.power = "The machines are stopped and started with the cluster"
			}
			assert.Equal(t, test.power, d.Conditions[1].Message)
			assert.Equal(t, test.status == corev1.ConditionTrue, d.Settled)
			if !test.changes {
				assert.Empty(t, d.Hosts)
				return
			}
			require.Len(t, d.Hosts, 1)
			assert.False(t, d.Hosts[0].After.Spec.Online)
			assert.Equal(t, blue, d.Hosts[0].After.Annotations[agentv1.BMHHibernatesAnnotation])
			assert.True(t, d.Hosts[0].Before.Spec.Online, "what was read is not changed")
		})
	}
}

func TestMachinesOfAClusterThatRuns(t *testing.T) {
	resumes := hivev1.Condition{Type: hivev1.ClusterDeploymentMachinesStopped, Status: corev1.ConditionTrue, Reason: hivev1.ReasonMachinesStopped}
	runs := hivev1.Condition{Type: hivev1.ClusterDeploymentMachinesStopped, Status: corev1.ConditionFalse, Reason: hivev1.ReasonMachinesRunning}
	for sentence, test := range map[string]struct {
		given   Machine
		silent  bool
		was     hivev1.Condition
		changes bool
		reason  string
		message string
	}{
		"one that hibernates waits for the API": {
			given: Machine{Node: "a", Host: host("h", hibernates)}, silent: true, was: resumes, reason: hivev1.ReasonStartingMachines, message: "a waits for the API of the cluster",
		},
		"then it is switched on": {
			given: Machine{Node: "a", Host: host("h", hibernates)}, was: resumes, changes: true, reason: hivev1.ReasonStartingMachines, message: "a is being switched on",
		},
		"and is waited for": {
			given: Machine{Node: "a", Host: host("h", func(h *metal3v1.BareMetalHost) { h.Status.PoweredOn = false })}, was: resumes,
			reason: hivev1.ReasonStartingMachines, message: "a is being switched on by BareMetalHost h",
		},
		"until its Node is Ready": {given: Machine{Node: "a", Host: host("h")}, was: resumes, reason: hivev1.ReasonStartingMachines, message: "a is not a Ready node"},
		"which it is":             {given: node("a", host("h")), was: resumes, reason: hivev1.ReasonMachinesRunning, message: "The machines are not stopped"},
		"one that its user switched off stays off": {
			given: Machine{Node: "a", Host: host("h", func(h *metal3v1.BareMetalHost) { h.Spec.Online, h.Status.PoweredOn = false, false })}, was: resumes,
			reason: hivev1.ReasonMachinesRunning, message: "The machines are not stopped",
		},
		"a Node that is lost later starts nothing": {given: Machine{Node: "a", Host: host("h")}, was: runs, reason: hivev1.ReasonMachinesRunning, message: "The machines are not stopped"},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := Plan(Snapshot{Name: blue, Cluster: cluster(hivev1.PowerStateRunning, test.was), Answers: !test.silent, Machines: []Machine{test.given}})
			require.Len(t, d.Conditions, 2)
			assert.Equal(t, corev1.ConditionFalse, d.Conditions[0].Status)
			assert.Equal(t, test.reason, d.Conditions[0].Reason)
			assert.Equal(t, test.message, d.Conditions[0].Message)
			if !test.changes {
				assert.Empty(t, d.Hosts)
				return
			}
			require.Len(t, d.Hosts, 1)
			assert.True(t, d.Hosts[0].After.Spec.Online)
			assert.NotContains(t, d.Hosts[0].After.Annotations, agentv1.BMHHibernatesAnnotation)
		})
	}
}

func TestAMachineThatLeavesAHibernatingClusterIsSwitchedOn(t *testing.T) {
	paused := cluster(hivev1.PowerStateHibernating)
	paused.Annotations = map[string]string{hivev1.AnnotationPowerStatePause: "True"}
	deleted := cluster(hivev1.PowerStateHibernating)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	for sentence, given := range map[string]Snapshot{
		"it was released":          {Cluster: cluster(hivev1.PowerStateHibernating), Left: []*metal3v1.BareMetalHost{host("h", hibernates)}},
		"the power is paused":      {Cluster: paused, Left: []*metal3v1.BareMetalHost{host("h", hibernates)}},
		"the cluster is gone":      {Left: []*metal3v1.BareMetalHost{host("h", hibernates)}},
		"the cluster is going":     {Cluster: deleted, Machines: []Machine{{Host: host("h", hibernates)}}},
		"its Agent still names it": {Machines: []Machine{{Host: host("h", hibernates)}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			given.Name = blue
			d := Plan(given)
			require.Len(t, d.Hosts, 1)
			assert.True(t, d.Hosts[0].After.Spec.Online)
		})
	}
}

func TestAPauseLeavesThePowerAlone(t *testing.T) {
	for _, annotation := range []string{hivev1.AnnotationPowerStatePause, hivev1.AnnotationReconcilePause} {
		c := cluster(hivev1.PowerStateHibernating, hivev1.Condition{Type: hivev1.ClusterDeploymentMachinesStopped, Reason: "Kept"})
		c.Annotations = map[string]string{annotation: "true"}
		d := Plan(Snapshot{Name: blue, Cluster: c, Machines: []Machine{node("a", host("h"))}})
		assert.Empty(t, d.Hosts)
		assert.Equal(t, c.Status.Conditions, d.Conditions)
	}
}

// testEnv is a cluster, its control plane and its machines. Each step of simulate lets one of its operators act.
type testEnv struct {
	Snapshot
	controlPlane bool
	hosts        []*metal3v1.BareMetalHost
}

// FuzzPlan hibernates and resumes a cluster while its machines and its control plane follow slowly, in any order, and the operator dies before any of its writes.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := &testEnv{Snapshot: Snapshot{Name: blue, Cluster: cluster(hivev1.PowerStateRunning)}, controlPlane: true}
		for i := range 1 + random.IntN(4) {
			w.hosts = append(w.hosts, host(fmt.Sprint(i)))
			w.Machines = append(w.Machines, node(fmt.Sprint(i), w.hosts[i]))
		}
		for range 400 {
			if random.IntN(12) == 0 {
				w.Cluster.Spec.PowerState = []hivev1.PowerState{hivev1.PowerStateRunning, hivev1.PowerStateHibernating}[random.IntN(2)]
			}
			w.step(t, random)
		}
		for _, power := range []hivev1.PowerState{hivev1.PowerStateHibernating, hivev1.PowerStateRunning} {
			w.Cluster.Spec.PowerState = power
			for range 400 {
				w.step(t, random)
			}
			for i, h := range w.hosts {
				assert.Equal(t, power == hivev1.PowerStateRunning, h.Status.PoweredOn, "machine %d of a cluster that is %s", i, power)
			}
			assert.Equal(t, power == hivev1.PowerStateRunning, w.controlPlane)
			assert.True(t, Plan(w.Snapshot).Settled)
		}
	})
}

func (w *testEnv) step(t *testing.T, random *rand.Rand) {
	t.Helper()
	stopped := hivev1.IsConditionTrue(w.Cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped)
	hibernates := w.Cluster.Spec.PowerState == hivev1.PowerStateHibernating
	i := random.IntN(len(w.hosts))
	m, h := &w.Machines[i], w.hosts[i]
	switch random.IntN(5) {
	case 0: // the operator of the control plane
		if hibernates && stopped && w.controlPlane {
			for _, one := range w.Machines {
				require.False(t, one.Host.Status.PoweredOn || one.NodeReady, "the control plane stops before a machine")
			}
		}
		w.controlPlane = w.controlPlane && (!hibernates || !stopped) || !hibernates
	case 1: // the operator of hosts
		h.Status.PoweredOn = h.Spec.Online
	case 2: // the Node, where there is an API that knows of it
		if w.controlPlane {
			m.NodeReady = h.Status.PoweredOn
		}
	default:
		w.act(t, random)
	}
	w.Answers = w.controlPlane
}

func (w *testEnv) act(t *testing.T, random *rand.Rand) {
	t.Helper()
	d := Plan(w.Snapshot)
	writes := random.IntN(len(d.Hosts) + 2)
	if writes == 0 {
		return
	}
	w.Cluster.Status.Conditions = d.Conditions
	for _, change := range d.Hosts[:writes-1] {
		require.False(t, change.After.Spec.Online && !w.controlPlane, "a machine is switched on without a control plane")
		for i, h := range w.hosts {
			if h == change.Before {
				w.hosts[i], w.Machines[i].Host = change.After, change.After
			}
		}
	}
}
