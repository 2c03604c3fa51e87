// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleplan_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/scaleplan"
)

var (
	worker  = map[string]string{"role": "worker"}
	healthy = scaleplan.Machine{HasHost: true, Order: scaleplan.Healthy}
	// young machines have a host and no node yet.
	young = scaleplan.Machine{HasHost: true, Order: scaleplan.Failing}
	// waiting machines have neither.
	waiting = scaleplan.Machine{Order: scaleplan.Failing}
	// orphans lost their host, and no controller has noticed yet.
	orphan = scaleplan.Machine{Order: scaleplan.Healthy}
)

func free(availabilities ...scaleplan.Availability) (out []scaleplan.Host) {
	for _, o := range availabilities {
		out = append(out, scaleplan.Host{Labels: worker, Availability: o})
	}
	return out
}

// keptFor is a host that is available and was released by a machine of a set whose machines have their hosts again.
func keptFor(set string) []scaleplan.Host {
	return []scaleplan.Host{{Labels: map[string]string{"role": "worker", scaleplan.ReuseLabel: set}, Availability: scaleplan.Available}}
}

func machines(m ...scaleplan.Machine) []scaleplan.Machine { return m }

func TestPlan(t *testing.T) {
	const available, coming, never = scaleplan.Available, scaleplan.Coming, scaleplan.Never
	for name, c := range map[string]struct {
		replicas int32
		machines []scaleplan.Machine
		free     []scaleplan.Host
		unknown  []scaleplan.Host
		want     int32
		why      scaleplan.Why
		note     string
	}{
		"no hosts, no replicas": {why: scaleplan.Following},
		"every available host that matches gets a machine": {
			free: append(free(available, available), scaleplan.Host{Availability: available}), want: 2, why: scaleplan.MoreHosts,
			note: "Scaled from 0 to 2: its machines have 0 hosts, and 2 more that match are available.",
		},
		"a host is counted with its machine, whatever its labels say now": {
			replicas: 1, machines: machines(healthy), want: 1, why: scaleplan.Following,
		},
		"a host that is kept for its machines is counted": {
			free: keptFor("md-workers"), want: 1, why: scaleplan.MoreHosts, note: "Scaled from 0 to 1: its machines have 0 hosts, and 1 more that matches is available.",
		},
		"a host that is kept for another set is not": {free: keptFor("md-others"), why: scaleplan.Following},
		"nor one that is kept for a control plane":   {free: keptFor("cp-workers"), why: scaleplan.Following},
		"nor one whose label names no set":           {free: keptFor(""), why: scaleplan.Following},
		"a machine waits for none that others get":   {replicas: 1, machines: machines(waiting), free: keptFor("md-others"), want: 0, why: scaleplan.FewerHosts},
		"one more": {
			replicas: 1, machines: machines(healthy), free: free(available), want: 2, why: scaleplan.MoreHosts,
			note: "Scaled from 1 to 2: its machines have 1 host, and 1 more that matches is available.",
		},
		"a machine that waits is given the host that comes": {
			replicas: 2, machines: machines(healthy, waiting), free: free(available), want: 2, why: scaleplan.Following,
		},
		"a host that is prepared adds no machine":    {free: free(coming), why: scaleplan.Following},
		"a host that is prepared takes none away":    {replicas: 1, machines: machines(waiting), free: free(coming), want: 1, why: scaleplan.Following},
		"a host that failed takes one away":          {replicas: 1, machines: machines(waiting), free: free(never), want: 0, why: scaleplan.FewerHosts, note: "Scaled from 1 to 0: its machines have 0 hosts, and no other that matches is available."},
		"too many were asked for by hand":            {replicas: 9, machines: machines(healthy, waiting, waiting), want: 1, why: scaleplan.FewerHosts},
		"machines that do not exist yet are no loss": {replicas: 9, machines: machines(healthy, healthy), want: 2, why: scaleplan.FewerHosts},
		"a machine that waits goes before healthy ones": {
			replicas: 3, machines: machines(healthy, healthy, waiting), want: 2, why: scaleplan.FewerHosts,
		},
		"it is unknown which machine lost its host": {
			replicas: 3, machines: machines(healthy, healthy, orphan), want: 3, why: scaleplan.HealthyMachines,
			note: "Stays at 3 although its machines have 2 hosts, and no other that matches is available: Cluster API might delete a machine that has a host. " +
				"Delete the machine that has none, or give it the annotation cluster.x-k8s.io/delete-machine.",
		},
		"a machine that is installed might go instead of one that waits": {
			replicas: 3, machines: machines(healthy, young, waiting), want: 3, why: scaleplan.HealthyMachines,
		},
		"a user said which machine goes": {
			replicas: 3, machines: machines(healthy, young, scaleplan.Machine{Order: scaleplan.Marked}), want: 2, why: scaleplan.FewerHosts,
		},
		"as many as can go at once": {
			replicas: 4, machines: machines(healthy, orphan, waiting, waiting), want: 2, why: scaleplan.FewerHosts,
		},
		"the machine that is left must not be chosen": {
			replicas: 2, machines: machines(healthy, orphan), want: 2, why: scaleplan.HealthyMachines,
		},
		"a rollout is not disturbed": {
			replicas: 2, machines: machines(healthy, scaleplan.Machine{Order: scaleplan.Failing, Set: "new"}), want: 2, why: scaleplan.HealthyMachines,
		},
		"a rollout that has hosts to spare grows": {
			replicas: 2, machines: machines(healthy, scaleplan.Machine{HasHost: true, Order: scaleplan.Failing, Set: "new"}), free: free(available), want: 3, why: scaleplan.MoreHosts,
		},
		"a host of a machine that the cache does not show may be the set's": {
			replicas: 2, machines: machines(healthy), unknown: free(never), want: 2, why: scaleplan.Following,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := scaleplan.Plan(scaleplan.Snapshot{
				Replicas: c.replicas, Machines: c.machines, Free: c.free, Unknown: c.unknown, Selector: labels.SelectorFromSet(worker), Reuse: "md-workers",
			})
			assert.Equal(t, c.want, d.Replicas)
			assert.Equal(t, c.why, d.Why)
			if c.note != "" {
				assert.Equal(t, c.note, d.Note)
			}
			assert.Equal(t, c.why != scaleplan.Following, d.Note != "", d.Note)
		})
	}
}

func TestAHeldSetIsLeftAlone(t *testing.T) {
	for why, announced := range map[scaleplan.Why]bool{
		scaleplan.Paused: false, scaleplan.ClusterMissing: false, scaleplan.Deleting: false, scaleplan.Owned: false,
		scaleplan.OtherAutoscaler: true, scaleplan.TemplateMissing: true, scaleplan.OtherInfrastructure: true, scaleplan.SelectorInvalid: true,
	} {
		d := scaleplan.Plan(scaleplan.Snapshot{Replicas: 7, Hold: why, Detail: "something", Free: free(scaleplan.Available)})
		assert.Equal(t, int32(7), d.Replicas)
		assert.Equal(t, why, d.Why)
		assert.Equal(t, announced, d.Note != "", why)
	}
}

// Cluster API deletes machines in order, and among equals any: whatever it chooses, no machine goes that has a host unless
// a user asked for that, and a set whose machines are known comes to rest.
func TestNoMachineGoesThatHasAHost(t *testing.T) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := scaleplan.Snapshot{Selector: labels.Everything(), Replicas: rng.Int32N(8)}
		for range rng.IntN(7) {
			s.Machines = append(s.Machines, scaleplan.Machine{HasHost: rng.IntN(2) == 0, Order: scaleplan.Order(rng.IntN(4))})
		}
		for range rng.IntN(3) {
			s.Free = append(s.Free, scaleplan.Host{Availability: scaleplan.Availability(rng.IntN(3))})
		}
		d := scaleplan.Plan(s)
		again := s
		again.Replicas = d.Replicas
		require.Equal(t, d.Replicas, scaleplan.Plan(again).Replicas, "seed %d: a decision stands", seed)
		if d.Replicas >= s.Replicas {
			continue
		}
		left := len(s.Machines) - int(d.Replicas)
		for order := scaleplan.Going; order <= scaleplan.Healthy && left > 0; order++ {
			for _, m := range s.Machines {
				if m.Order != order {
					continue
				}
				left--
				require.False(t, m.HasHost && order >= scaleplan.Failing, "seed %d: %+v might go", seed, m)
			}
		}
	}
}

func TestOutlookOf(t *testing.T) {
	host := func(state metal3v1.ProvisioningState, change func(*metal3v1.BareMetalHost)) *metal3v1.BareMetalHost {
		h := &metal3v1.BareMetalHost{}
		h.Annotations = map[string]string{}
		h.Status.Provisioning.State = state
		if change != nil {
			change(h)
		}
		return h
	}
	for state, want := range map[metal3v1.ProvisioningState]scaleplan.Availability{
		metal3v1.StateAvailable: scaleplan.Available, metal3v1.StateReady: scaleplan.Available,
		metal3v1.StateInspecting: scaleplan.Coming, metal3v1.StateDeprovisioning: scaleplan.Coming, metal3v1.StatePreparing: scaleplan.Coming,
		metal3v1.StateNone: scaleplan.Never, metal3v1.StateUnmanaged: scaleplan.Never, metal3v1.StateDiscovered: scaleplan.Never,
		metal3v1.StateProvisioned: scaleplan.Never, metal3v1.StateExternallyProvisioned: scaleplan.Never, metal3v1.StateDeleting: scaleplan.Never,
	} {
		assert.Equal(t, want, scaleplan.AvailabilityOf(host(state, nil)), state)
	}
	for name, change := range map[string]func(*metal3v1.BareMetalHost){
		"paused":    func(h *metal3v1.BareMetalHost) { h.Annotations[metal3v1.PausedAnnotation] = "" },
		"unhealthy": func(h *metal3v1.BareMetalHost) { h.Annotations[scaleplan.UnhealthyAnnotation] = "" },
		"deleted":   func(h *metal3v1.BareMetalHost) { h.DeletionTimestamp = new(metav1.Now()) },
		"failed":    func(h *metal3v1.BareMetalHost) { h.Status.ErrorMessage = "no" },
	} {
		assert.Equal(t, scaleplan.Never, scaleplan.AvailabilityOf(host(metal3v1.StateAvailable, change)), name)
	}
}
