// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// returning is an Ironic that is away until some time, and works on every node afterwards. Meanwhile it refuses connections, or never answers.
type returning struct {
	Manager // no other method is called
	to      time.Time
	silent  bool

	mu sync.Mutex
	// asked are the nodes that hosts asked for.
	asked map[string]bool
}

func (i *returning) Address(string, *metal3v1.IronicReference) inventory.Address {
	return inventory.Address{View: "one", Session: "one"}
}

func (i *returning) Provisioner(context.Context, string, *metal3v1.IronicReference) (Manager, error) {
	return i, nil
}

func (i *returning) answer(ctx context.Context) error {
	if !time.Now().Before(i.to) {
		return nil
	}
	if !i.silent {
		return inventory.Failf(inventory.ProblemUnreachable, "connection refused")
	}
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Second): // the time-out of a client
	}
	return inventory.Failf(inventory.ProblemTimedOut, "no answer in time")
}

func (i *returning) Enter(ctx context.Context) error { return i.answer(ctx) }

func (i *returning) Node(ctx context.Context, uuid string) (inventory.Node, error) {
	if err := i.answer(ctx); err != nil {
		return inventory.Node{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked[uuid] = true
	return inventory.Node{}, inventory.ErrBusy
}

// TestAHostIsTriedWithin15SecondsOfIronicsReturn has more hosts than one Ironic is asked for at a time. Half of them have credentials, and half are being deleted.
// The return may come at any moment between two attempts.
func TestAHostIsTriedWithin15SecondsOfIronicsReturn(t *testing.T) {
	for name, silent := range map[string]bool{"it refuses connections": false, "it never answers": true} {
		for offset := range 15 {
			t.Run(fmt.Sprintf("%s, %d s", name, offset), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					returns(t, &returning{to: time.Now().Add(time.Minute + time.Duration(offset)*time.Second), silent: silent, asked: map[string]bool{}})
				})
			})
		}
	}
}

func returns(t *testing.T, ironic *returning) {
	t.Helper()
	const hosts = 3 * atOnce
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, metal3v1.AddToScheme(scheme))
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&metal3v1.BareMetalHost{}).WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bmc"}, Data: map[string][]byte{"username": []byte("admin"), "password": []byte("hush")},
	})
	var keys []types.NamespacedName
	for i := range hosts {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprint("h", i), UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{metal3v1.DiscoveredByLabel: "d"},
			Finalizers: []string{metal3v1.DiscoveryFinalizer}, Annotations: map[string]string{metal3v1.PausedAnnotation: metal3v1.DiscoveryPausedValue, metal3v1.NodeAnnotation: fmt.Sprint("node-", i)},
		}}
		h.Spec.BMC = &metal3v1.BMCDetails{Address: "ipmi://192.0.2.1", CredentialsName: "bmc"}
		h.Status.LastUpdated = new(metav1.Now())
		if i%2 == 0 {
			h.DeletionTimestamp = new(metav1.Now())
		}
		b.WithObjects(h)
		keys = append(keys, types.NamespacedName{Namespace: h.Namespace, Name: h.Name})
	}
	c := b.Build()
	r := New(Deps{Client: c, Live: c, Recorder: &events.FakeRecorder{}, Provisioners: ironic, Counter: counting{}, Namespace: "system"})
	q := &lines{at: map[string]chan struct{}{}}
	for _, key := range keys {
		q.at[key.Name] = make(chan struct{}, 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
		<-time.After(lateAnswer) // for requests that no host waits for
	}()
	running.Go(func() { q.wake(ctx, r) })
	for _, key := range keys {
		running.Go(func() { q.work(ctx, t, r, key) })
	}
	<-time.After(time.Until(ironic.to) + 15*time.Second + time.Millisecond)
	ironic.mu.Lock()
	defer ironic.mu.Unlock()
	assert.Len(t, ironic.asked, hosts, "each host asks for its node")
}

// counting counts nothing.
type counting struct{}

func (counting) HandedOver()  {}
func (counting) NodeDeleted() {}

// lines are the queue of the controller: each host is worked on when its time has come, or when it is woken.
type lines struct{ at map[string]chan struct{} }

func (q *lines) wake(ctx context.Context, r *Reconciler) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.endpoints.wake:
			select {
			case q.at[e.Object.Name] <- struct{}{}:
			default:
			}
		}
	}
}

func (q *lines) work(ctx context.Context, t *testing.T, r *Reconciler, key types.NamespacedName) {
	version := func(ctx context.Context) string {
		var h metal3v1.BareMetalHost
		assert.NoError(t, r.Live.Get(ctx, key, &h))
		return h.ResourceVersion
	}
	for ctx.Err() == nil {
		before := version(ctx)
		pass, end := context.WithTimeout(ctx, passTimeout)
		result, err := r.Reconcile(pass, ctrl.Request{NamespacedName: key})
		end()
		var due <-chan time.Time
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.Errorf("host %s: %v", key, err)
			return
		case version(ctx) != before: // as the watch would
			continue
		case result.RequeueAfter > 0:
			due = time.After(result.RequeueAfter)
		}
		select {
		case <-ctx.Done():
		case <-due:
		case <-q.at[key.Name]:
		}
	}
}
