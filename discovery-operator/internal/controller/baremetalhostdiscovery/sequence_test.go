// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

const system = "system"

func init() { ctrl.SetLogger(logr.Discard()) }

// harness is an API server without a network, a rack, and processes that come and go.
type harness struct {
	*testing.T
	client.WithWatch
	rack  *demo.Rack
	names []string
	// later is by how much the clocks of new processes are ahead, so that reservations of dead ones are old.
	later time.Duration
}

func newHarness(t *testing.T, names ...string) *harness {
	// The fake client walks the whole scheme at every apply: it has no kinds but those that are used.
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, metal3v1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	s := &harness{T: t, rack: demo.New(), names: names}
	s.WithWatch = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&metal3v1.BareMetalHost{}, &metal3v1.BareMetalHostDiscovery{}).Build()
	for _, name := range names {
		d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		d.Spec.ResourceNameTemplate = metal3v1.ResourceNameTemplate{Prefix: name + "-", HardwareDetails: metal3v1.DetailHostname, Fallback: []metal3v1.HardwareDetail{metal3v1.DetailBootMAC}}
		d.Spec.Interval = &metav1.Duration{Duration: 10 * time.Millisecond}
		d.Spec.ResyncInterval = &metav1.Duration{Duration: 50 * time.Millisecond}
		require.NoError(t, s.Create(t.Context(), d))
	}
	return s
}

// crashing is the rack as a process sees it.
type crashing struct {
	*demo.Rack
	*faultinject.Injector
}

func (m crashing) Nodes(ctx context.Context, after string) (out []inventory.Node, err error) {
	err = m.Call(func() error { out, err = m.Rack.Nodes(ctx, after); return err })
	return out, err
}

func (m crashing) Ports(ctx context.Context, after string) (out []inventory.Port, err error) {
	err = m.Call(func() error { out, err = m.Rack.Ports(ctx, after); return err })
	return out, err
}

func (m crashing) Node(ctx context.Context, id string) (out inventory.Node, err error) {
	err = m.Call(func() error { out, err = m.Rack.Node(ctx, id); return err })
	return out, err
}

func (m crashing) Report(ctx context.Context, id string) (out *inventory.Report, err error) {
	err = m.Call(func() error { out, err = m.Rack.Report(ctx, id); return err })
	return out, err
}

// Address implements Sources.
func (m crashing) Address(string, *metal3v1.IronicReference) inventory.Address {
	return inventory.Address{Endpoint: "rack"}
}

// Source implements Sources.
func (m crashing) Source(context.Context, string, *metal3v1.IronicReference) (fleet.Source, error) {
	return m, nil
}

// Created implements Counter.
func (crashing) Created() {}

// Refused implements Counter.
func (crashing) Refused() {}

// process is one replica of the operator.
type process struct {
	*Reconciler
	*faultinject.Injector
	end func()
}

func (s *harness) start(f *faultinject.Injector) *process {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	from := crashing{s.rack, f}
	fleets := fleet.NewRegistry(nil)
	writes := interceptor.NewClient(s.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return f.Call(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return f.Call(func() error { return c.Update(ctx, o, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return f.Call(func() error { return c.SubResource(sub).Apply(ctx, o, opts...) })
		},
	})
	p := &process{Injector: f, Reconciler: New(Deps{
		Client: writes, Live: s.WithWatch, Recorder: &events.FakeRecorder{}, Sources: from, Fleets: fleets, Counter: from, Namespace: system, Workers: 2,
	})}
	ahead := s.later
	s.later += 2 * reservation.Time
	p.now = func() time.Time { return time.Now().Add(ahead) }
	var running sync.WaitGroup
	running.Go(func() { _ = fleets.Start(ctx) })
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.wake:
			}
		}
	})
	p.end = func() { cancel(); running.Wait() }
	return p
}

// look lets a process look at all resources once.
func (s *harness) look(p *process) {
	for _, name := range s.names {
		_, _ = p.Reconcile(s.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}})
		s.check()
	}
}

func (s *harness) hosts() []metal3v1.BareMetalHost {
	var list metal3v1.BareMetalHostList
	require.NoError(s, s.List(s.Context(), &list))
	return list.Items
}

// check is what must hold at any time: no two hosts of one machine.
func (s *harness) check() {
	seen := map[string]string{}
	for _, h := range s.hosts() {
		for _, identity := range []string{strings.ToLower(h.Spec.BootMACAddress), h.Annotations[metal3v1.NodeAnnotation]} {
			require.Empty(s, seen[identity], "hosts %s and %s are one machine", seen[identity], h.Name)
			seen[identity] = h.Name
		}
	}
}

// lost returns the nodes that neither belong to a host with a status nor are explained by a resource.
func (s *harness) lost() []string {
	explained := map[string]bool{}
	for _, name := range s.names {
		var d metal3v1.BareMetalHostDiscovery
		require.NoError(s, s.Get(s.Context(), types.NamespacedName{Namespace: "ns", Name: name}, &d))
		for _, m := range d.Status.Machines {
			explained[m.Node] = explained[m.Node] || slices.Contains([]string{
				metal3v1.RefusedDuplicateMAC, metal3v1.RefusedDuplicateSerial, metal3v1.RefusedDuplicateBMC, metal3v1.RefusedNameTaken,
			}, m.Reason)
		}
	}
	macs := map[string]bool{}
	for _, h := range s.hosts() {
		if h.HasStatus() {
			explained[h.Status.Provisioning.ID] = true
			macs[strings.ToLower(h.Spec.BootMACAddress)] = true
		}
	}
	nodes, err := s.rack.Nodes(s.Context(), "")
	require.NoError(s, err)
	var lost []string
	for _, n := range nodes {
		ports, err := s.rack.PortsOf(s.Context(), n.UUID)
		require.NoError(s, err)
		if !explained[n.UUID] && !slices.ContainsFunc(ports, func(p inventory.Port) bool { return macs[p.MAC] }) {
			lost = append(lost, n.UUID)
		}
	}
	return lost
}

// settles lets two new processes work until no machine is lost.
func (s *harness) settles() {
	one, two := s.start(faultinject.Never()), s.start(faultinject.Never())
	defer one.end()
	defer two.end()
	defer func() {
		if s.Failed() {
			s.tell()
		}
	}()
	require.Eventually(s, func() bool {
		s.look(one)
		s.look(two)
		return len(s.lost()) == 0
	}, time.Minute, 20*time.Millisecond, "a machine is lost")
}

// tell logs all that there is.
func (s *harness) tell() {
	s.Logf("lost: %v", s.lost())
	for _, name := range s.names {
		var d metal3v1.BareMetalHostDiscovery
		require.NoError(s, s.Get(s.Context(), types.NamespacedName{Namespace: "ns", Name: name}, &d))
		s.Logf("resource %s: %+v", name, d.Status)
	}
	for _, h := range s.hosts() {
		s.Logf("host %s: boot MAC %s, node %s, status of node %q", h.Name, h.Spec.BootMACAddress, h.Annotations[metal3v1.NodeAnnotation], h.Status.Provisioning.ID)
	}
	var leases coordinationv1.LeaseList
	require.NoError(s, s.List(s.Context(), &leases))
	for i := range leases.Items {
		s.Logf("reservation: %+v", reservation.Of(&leases.Items[i]))
	}
	nodes, err := s.rack.Nodes(s.Context(), "")
	require.NoError(s, err)
	for _, n := range nodes {
		ports, err := s.rack.PortsOf(s.Context(), n.UUID)
		require.NoError(s, err)
		s.Logf("node %+v: %+v", n, ports)
	}
}

// TestADeathAtEveryIronicCallAndWrite ends a process at each call of Ironic and each write while it takes machines in, two of them with one
// serial number. Others continue.
func TestADeathAtEveryIronicCallAndWrite(t *testing.T) {
	for n := 1; ; n++ {
		s := newHarness(t, "a", "b")
		for i := 1; i <= 3; i++ {
			_, err := s.rack.Enrol(demo.Machine(i, func(m map[string]any) {
				if i > 1 {
					m["system_vendor"].(map[string]any)["serial_number"] = "SN-shared"
				}
			}))
			require.NoError(t, err)
		}
		first := s.start(faultinject.At(n, n%2 == 0))
		require.Eventually(t, func() bool {
			s.look(first)
			return first.Crashed() || len(s.lost()) == 0
		}, time.Minute, 20*time.Millisecond)
		first.end()
		s.settles()
		require.Len(t, s.hosts(), 2, "act %d", n)
		if !first.Crashed() { // everything was done before the n-th act
			require.Greater(t, n, 12, "2 lists, 3 reports, 2 reservations, hosts and statuses, and the status of the resources")
			return
		}
	}
}

// TestRandomLives mixes what can happen: machines arrive in any order, come back with swapped interfaces or the serial number of another,
// leave; hosts are deleted; resources change their names; processes die anywhere.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 7))
			s := newHarness(t, "a", "b", "c")
			replicas := []*process{s.start(faultinject.At(1+random.IntN(60), false)), s.start(faultinject.Never())}
			for range 40 {
				s.disturb(random)
				k := random.IntN(2)
				s.look(replicas[k])
				if replicas[k].Crashed() {
					replicas[k].end()
					replicas[k] = s.start(faultinject.At(1+random.IntN(60), random.IntN(2) == 0))
				}
			}
			for _, p := range replicas {
				p.end()
			}
			s.settles()
		})
	}
}

// disturb changes something of the rack, the hosts or the resources at random.
func (s *harness) disturb(random *rand.Rand) {
	switch random.IntN(8) {
	case 0, 1, 2:
		i, j := 1+random.IntN(10), 1+random.IntN(10)
		// Ironic refuses a machine that it knows by one of its interfaces; such an arrival is nothing.
		_, _ = s.rack.Enrol(demo.Machine(i, func(m map[string]any) {
			switch nics := m["interfaces"].([]any); random.IntN(5) {
			case 0:
				nics[0], nics[1] = nics[1], nics[0]
				m["boot"] = nil
			case 1:
				nics[1].(map[string]any)["mac_address"] = demo.MAC(j, 1)
			case 2:
				m["system_vendor"].(map[string]any)["serial_number"] = "SN-shared"
			}
		}))
	case 3:
		nodes, err := s.rack.Nodes(s.Context(), "")
		require.NoError(s, err)
		if len(nodes) > 0 {
			require.NoError(s, s.rack.DeleteNode(s.Context(), nodes[random.IntN(len(nodes))].UUID))
		}
	case 4:
		if hosts := s.hosts(); len(hosts) > 0 {
			s.deleteHost(&hosts[random.IntN(len(hosts))])
		}
	case 5:
		var d metal3v1.BareMetalHostDiscovery
		require.NoError(s, s.Get(s.Context(), types.NamespacedName{Namespace: "ns", Name: s.names[random.IntN(len(s.names))]}, &d))
		d.Spec.ResourceNameTemplate.Prefix = fmt.Sprintf("%s%d-", d.Name, random.IntN(3))
		require.NoError(s, s.Update(s.Context(), &d))
	}
}

// deleteHost does what the controller of hosts does when a user deletes one: the node, the reservation, the finalizer.
func (s *harness) deleteHost(h *metal3v1.BareMetalHost) {
	err := s.rack.DeleteNode(s.Context(), h.Annotations[metal3v1.NodeAnnotation])
	if err != nil {
		require.ErrorIs(s, err, inventory.ErrNotFound)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: reservation.Name(h.Spec.BootMACAddress)}}
	require.NoError(s, client.IgnoreNotFound(s.Delete(s.Context(), lease)))
	h.Finalizers = nil
	require.NoError(s, s.Update(s.Context(), h))
	require.NoError(s, client.IgnoreNotFound(s.Delete(s.Context(), h)))
	assert.Error(s, s.Get(s.Context(), client.ObjectKeyFromObject(h), h))
}
