// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// TestAHostWithoutCredentialsSaysThatIronicIsAway follows a host that waits for credentials while its Ironic goes and comes back.
func TestAHostWithoutCredentialsSaysThatIronicIsAway(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, metal3v1.AddToScheme(scheme))
	host := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "h", Labels: map[string]string{metal3v1.DiscoveredByLabel: "d"}, Finalizers: []string{metal3v1.DiscoveryFinalizer},
		Annotations: map[string]string{metal3v1.PausedAnnotation: metal3v1.DiscoveryPausedValue},
	}}
	host.Status.LastUpdated = new(metav1.NewTime(now))
	d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(host, d).WithStatusSubresource(host, d).Build()
	r := New(Deps{Client: c, Live: c, Recorder: &events.FakeRecorder{}, Namespace: "system"})
	r.Now = func() time.Time { return now }
	endpoint := func(status metav1.ConditionStatus, reason, message string) {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(d), d))
		d.Status.Conditions = []metav1.Condition{{
			Type: metal3v1.ConditionEndpointReady, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
		}}
		require.NoError(t, c.Status().Update(t.Context(), d))
	}
	says := func(after time.Duration) *metav1.Condition {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(host)})
		require.NoError(t, err)
		require.Equal(t, after, result.RequeueAfter)
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(host), host))
		return meta.FindStatusCondition(host.Status.Conditions, metal3v1.ConditionHandedOver)
	}

	endpoint(metav1.ConditionTrue, metal3v1.ReasonReachable, "Ironic answers.")
	assert.Equal(t, metal3v1.ReasonWaitingForCredentials, says(0).Reason)
	endpoint(metav1.ConditionFalse, metal3v1.ReasonEndpointUnreachable, "connection refused")
	assert.Equal(t, metal3v1.ReasonWaitingForCredentials, says(awayTime).Reason, "a moment is no outage")
	now = now.Add(awayTime)
	away := says(0)
	assert.Equal(t, metal3v1.ReasonEndpointUnreachable, away.Reason)
	assert.Contains(t, away.Message, "connection refused")
	endpoint(metav1.ConditionTrue, metal3v1.ReasonReachable, "Ironic answers.")
	assert.Equal(t, metal3v1.ReasonWaitingForCredentials, says(0).Reason)

	endpoint(metav1.ConditionFalse, metal3v1.ReasonEndpointNotShared, "the Ironic is another namespace's")
	now = now.Add(awayTime)
	assert.Equal(t, metal3v1.ReasonWaitingForCredentials, says(0).Reason, "that says nothing about Ironic")
	host.Annotations[metal3v1.IronicAnnotation] = `{"endpoint":"http://192.0.2.1"}`
	require.NoError(t, c.Update(t.Context(), host))
	endpoint(metav1.ConditionFalse, metal3v1.ReasonEndpointUnreachable, "connection refused")
	now = now.Add(awayTime)
	assert.Equal(t, metal3v1.ReasonWaitingForCredentials, says(0).Reason, "its node is in another Ironic")
}

// TestHostsLookAgainWhenTheirIronicGoesOrComesBack holds which changes of a resource concern which hosts.
func TestHostsLookAgainWhenTheirIronicGoesOrComesBack(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, metal3v1.AddToScheme(scheme))
	host := func(name, by, pause string) *metal3v1.BareMetalHost {
		return &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: map[string]string{metal3v1.DiscoveredByLabel: by}, Annotations: map[string]string{metal3v1.PausedAnnotation: pause},
		}}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		host("held", "d", metal3v1.DiscoveryPausedValue), host("paused", "d", "user"), host("of-another", "e", metal3v1.DiscoveryPausedValue)).Build()
	r := New(Deps{Client: c})
	resource := func(status metav1.ConditionStatus, reason string) *metal3v1.BareMetalHostDiscovery {
		d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d"}}
		d.Status.Conditions = []metav1.Condition{{Type: metal3v1.ConditionEndpointReady, Status: status, Reason: reason}}
		return d
	}
	up, down := resource(metav1.ConditionTrue, metal3v1.ReasonReachable), resource(metav1.ConditionFalse, metal3v1.ReasonEndpointUnreachable)
	assert.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "held"}}}, r.held(t.Context(), down))
	matters := endpointMatters()
	assert.True(t, matters.Update(event.UpdateEvent{ObjectOld: up, ObjectNew: down}))
	assert.True(t, matters.Update(event.UpdateEvent{ObjectOld: down, ObjectNew: up}))
	assert.False(t, matters.Update(event.UpdateEvent{ObjectOld: down, ObjectNew: down}))
	assert.True(t, matters.Create(event.CreateEvent{Object: down}))
	assert.False(t, matters.Create(event.CreateEvent{Object: up}))
}

// TestAHostThatDiscoveryIsMakingIsLeftAlone holds which hosts without a status are looked at: a rack that is switched on makes a thousand.
func TestAHostThatDiscoveryIsMakingIsLeftAlone(t *testing.T) {
	made := func(change func(*metal3v1.BareMetalHost)) *metal3v1.BareMetalHost {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{metal3v1.DiscoveredByLabel: "d"}, Annotations: map[string]string{metal3v1.PausedAnnotation: metal3v1.DiscoveryPausedValue},
		}}
		change(h)
		return h
	}
	for name, c := range map[string]struct {
		host   *metal3v1.BareMetalHost
		passes bool
	}{
		"it was just made":           {made(func(*metal3v1.BareMetalHost) {}), false},
		"it has its status":          {made(func(h *metal3v1.BareMetalHost) { h.Status.LastUpdated = new(metav1.Now()) }), true},
		"it is being deleted":        {made(func(h *metal3v1.BareMetalHost) { h.DeletionTimestamp = new(metav1.Now()) }), true},
		"a user made it":             {made(func(h *metal3v1.BareMetalHost) { h.Labels = nil }), true},
		"a user approved it already": {made(func(h *metal3v1.BareMetalHost) { h.Annotations[metal3v1.ApprovedAnnotation] = "true" }), true},
		"a user took the pause off":  {made(func(h *metal3v1.BareMetalHost) { delete(h.Annotations, metal3v1.PausedAnnotation) }), true},
		"it was moved to here":       {made(func(h *metal3v1.BareMetalHost) { h.Annotations[metal3v1.StatusAnnotation] = "{}" }), true},
	} {
		assert.Equal(t, c.passes, withStatus().Create(event.CreateEvent{Object: c.host}), name)
		assert.Equal(t, c.passes, withStatus().Update(event.UpdateEvent{ObjectOld: c.host, ObjectNew: c.host}), name)
		assert.True(t, withStatus().Delete(event.DeleteEvent{Object: c.host}), name)
	}
}

// TestAHostWhoseIronicCannotBeReadSaysWhatToDo: the annotation is the user's to change, and the host says so in place of the log.
func TestAHostWhoseIronicCannotBeReadSaysWhatToDo(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, metal3v1.AddToScheme(scheme))
	for name, manage := range map[string]bool{"that is handed over": false, "that is managed": true} {
		t.Run(name, func(t *testing.T) {
			host := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "h", Labels: map[string]string{metal3v1.DiscoveredByLabel: "d"}, Finalizers: []string{metal3v1.DiscoveryFinalizer},
				Annotations: map[string]string{metal3v1.PausedAnnotation: metal3v1.DiscoveryPausedValue, metal3v1.IronicAnnotation: "http://192.0.2.1"},
			}}
			host.Spec.BMC = &metal3v1.BMCDetails{Address: "ipmi://192.0.2.2", CredentialsName: "bmc"}
			host.Status.LastUpdated = new(metav1.NewTime(time.Now()))
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bmc"}, Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(host, secret).WithStatusSubresource(host).
				WithIndex(&coordinationv1.Lease{}, holderIndex, func(client.Object) []string { return nil }).Build()
			r := New(Deps{Client: c, Live: c, Recorder: events.NewFakeRecorder(10), Namespace: "system", ManageHosts: manage})
			for range 6 {
				_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(host)})
				require.NoError(t, err)
			}
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(host), host))
			kind := metal3v1.ConditionHandedOver
			if manage {
				kind = metal3v1.ConditionReady
			}
			said := meta.FindStatusCondition(host.Status.Conditions, kind)
			require.NotNil(t, said)
			assert.Equal(t, metal3v1.ReasonEndpointMissing, said.Reason)
			assert.Contains(t, said.Message, "set it to the spec.ironic of the BareMetalHostDiscovery, as JSON, or remove it")
		})
	}
}
