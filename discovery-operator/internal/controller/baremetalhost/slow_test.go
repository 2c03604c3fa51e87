// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// slow is an Ironic that does at once what it is asked for, and takes its time for each answer.
type slow struct {
	*demo.Rack
	takes time.Duration
}

func (i slow) Address(string, *metal3v1.IronicReference) inventory.Address {
	return inventory.Address{Ironic: "slow", View: "slow", Session: "one"}
}

func (i slow) Provisioner(context.Context, string, *metal3v1.IronicReference) (Manager, error) {
	return i, nil
}

// after waits for the answers to so many requests, the last of which is err.
func (i slow) after(ctx context.Context, requests int, err error) error {
	for range requests {
		select {
		case <-ctx.Done():
			return inventory.Failf(inventory.ProblemTimedOut, "no answer in time")
		case <-time.After(i.takes):
		}
	}
	return err
}

func (i slow) Enter(ctx context.Context) error { return i.after(ctx, 1, nil) }

func (i slow) PortsOf(ctx context.Context, node string) ([]inventory.Port, error) {
	ports, err := i.Rack.PortsOf(ctx, node)
	return ports, i.after(ctx, 1, err)
}

func (i slow) Managed(ctx context.Context, uuid string) (hoststate.Node, error) {
	n, err := i.Rack.Managed(ctx, uuid)
	return n, i.after(ctx, 1, err)
}

func (i slow) Find(ctx context.Context, names, macs []string) (string, error) {
	uuid, err := i.Rack.Find(ctx, names, macs)
	return uuid, i.after(ctx, len(names)+len(macs), err)
}

func (i slow) EnrolNode(ctx context.Context, name string, a hoststate.Access) (string, error) {
	uuid, err := i.Rack.EnrolNode(ctx, name, a)
	return uuid, i.after(ctx, 1, err)
}

func (i slow) EnsurePort(ctx context.Context, uuid, mac string) error {
	return i.after(ctx, 2, i.Rack.EnsurePort(ctx, uuid, mac))
}

func (i slow) Write(ctx context.Context, n hoststate.Node, name string, a hoststate.Access) error {
	return i.after(ctx, 2, i.Rack.Write(ctx, n, name, a))
}

func (i slow) SetProvision(ctx context.Context, uuid, target string) error {
	return i.after(ctx, 1, i.Rack.SetProvision(ctx, uuid, target))
}

func (i slow) SetPower(ctx context.Context, uuid, target string) error {
	return i.after(ctx, 1, i.Rack.SetPower(ctx, uuid, target))
}

// TestTheHostsOfASlowIronicAreRegistered has an Ironic that needs nearly as long for each answer as a request may take, and an API server that answers nothing once a pass has
// had its time.
func TestTheHostsOfASlowIronicAreRegistered(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Second, 29 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { registers(t, slow{demo.New(), takes}) }) })
	}
}

func registers(t *testing.T, ironic slow) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, metal3v1.AddToScheme(scheme))
	h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h", UID: "1"}}
	h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1", CredentialsName: "bmc"}
	h.Spec.BootMACAddress, h.Spec.InspectionMode = "52:54:00:00:00:01", "disabled"
	server := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(h).WithObjects(h, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bmc"}, Data: map[string][]byte{"username": []byte("admin"), "password": []byte("hush")},
	}).Build()
	c := interceptor.NewClient(server, interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, c client.Client, part string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return c.SubResource(part).Apply(ctx, o, opts...)
		},
	})
	r := New(Deps{Client: c, Live: c, Recorder: &events.FakeRecorder{}, Provisioners: ironic, Counter: counting{}, Namespace: "system", ManageHosts: true})
	q := &lines{at: map[string]chan struct{}{h.Name: make(chan struct{}, 1)}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.wake(ctx, r) })
	running.Go(func() { q.work(ctx, t, r, client.ObjectKeyFromObject(h)) })
	<-time.After(time.Hour)
	cancel()
	running.Wait()
	<-time.After(lateAnswer) // for requests that no host waits for

	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(h), h))
	assert.Equal(t, metal3v1.StateAvailable, h.Status.Provisioning.State, "%+v", h.Status.Conditions)
	nodes, err := ironic.Nodes(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, nodes, 1, "the node is made once")
	assert.Equal(t, h.Status.Provisioning.ID, nodes[0].UUID)
}
