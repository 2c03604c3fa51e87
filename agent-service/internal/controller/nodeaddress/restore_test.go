// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeaddress

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/faultinject"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func (h hosts) Inventory(_ context.Context, _ domain.Principal, key domain.HostKey) ([]byte, error) {
	return nil, domain.RefuseUnknown("Inventory", key.HostID)
}

func (h hosts) NoteAddressing(context.Context, *domain.Host, domain.Addressing) error { return nil }

// After a loss of its data, the service knows a machine first that boots the discovery image as free. It is restored as installed a moment later, and its system starts with its addresses again.
func TestAnInstalledMachineKeepsItsAddressesWhenTheDatabaseIsLost(t *testing.T) {
	const id = "00000000-0000-0000-0000-000000000001"
	installed := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	moved := domain.Host{State: lifecycle.DisconnectedUnbound, InstalledAt: installed, ReleaseMovedAt: installed}
	for sentence, test := range map[string]struct {
		host   domain.Host
		also   map[domain.HostKey]domain.Host
		change func(*agentv1.AgentStatus)
		gone   bool
	}{
		"free, as far as the service knows": {host: domain.Host{State: lifecycle.DiscoveringUnbound}},
		"freed since it was installed":      {host: domain.Host{State: lifecycle.KnownUnbound, InstalledAt: installed}, gone: true},
		"being wiped, with the image of another InfraEnv": {
			host: moved, also: map[domain.HostKey]domain.Host{{InfraEnvID: "other", HostID: id}: {State: lifecycle.InsufficientUnbound, Release: domain.Release{StartedAt: installed}}},
		},
		"wiped since, with the image of another InfraEnv": {
			host: moved, also: map[domain.HostKey]domain.Host{{InfraEnvID: "other", HostID: id}: {State: lifecycle.KnownUnbound, Release: domain.Release{StartedAt: installed, EndedAt: installed}}}, gone: true,
		},
		"another machine of its id is being wiped in another namespace": {
			host: moved, also: map[domain.HostKey]domain.Host{{InfraEnvID: "foreign", HostID: id}: {State: lifecycle.InsufficientUnbound, Release: domain.Release{StartedAt: installed}}}, gone: true,
		},
		"on its way back, and not wiped yet": {
			host: domain.Host{State: lifecycle.DiscoveringUnbound},
			change: func(s *agentv1.AgentStatus) {
				s.DebugInfo.EventsURL, s.Progress = "", agentv1.HostProgress{}
				agentv1.SetCondition(&s.Conditions, agentv1.Condition{Type: agentv1.ConditionReleased, Status: corev1.ConditionFalse, Reason: agentv1.ReasonRebooting}, metav1.NewTime(installed))
			},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			scheme := runtime.NewScheme()
			require.NoError(t, agentv1.AddToScheme(scheme))
			require.NoError(t, ipamv1.AddToScheme(scheme))
			one := &agentv1.Agent{
				ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: id, UID: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "InfraEnv", Name: "e", UID: "e"}}},
				Status: agentv1.AgentStatus{
					DebugInfo: agentv1.AgentDebugInfo{EventsURL: "https://s/v2/events?cluster_id=c&host_id=h"},
					Progress:  agentv1.HostProgress{CurrentStage: string(lifecycle.StageDone), StageUpdateTime: &metav1.Time{Time: installed}},
				},
			}
			if test.change != nil {
				test.change(&one.Status)
			}
			infraEnv := &agentv1.InfraEnv{
				ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "e", UID: "e"}, Spec: agentv1.InfraEnvSpec{NodeAddresses: []agentv1.NodeAddressPool{{Name: "rack"}}},
			}
			claim := IPClaims().newClaim(one, id+"-0123456789", domain.AddressPool{Group: ipamv1.GroupVersion.Group, Kind: ipamv1.IPPoolKind, Name: "rack"})
			other := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "other", UID: "other"}}
			foreign := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "foreign", Name: "other", UID: "foreign"}}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(one, infraEnv, other, foreign, claim).
				WithIndex(&agentv1.InfraEnv{}, infraenv.UIDIndex, func(o client.Object) []string { return []string{string(o.GetUID())} }).Build()
			test.host.HostKey = domain.HostKey{InfraEnvID: "e", HostID: id}
			known := hosts{known: map[domain.HostKey]domain.Host{test.host.HostKey: test.host}}
			maps.Copy(known.known, test.also)
			r := New(Deps{Client: api, Live: api, Claims: claimsOf{Client: api}, Service: known, Kinds: []Kind{IPClaims()}})
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(one)})
			if !apierrors.IsConflict(err) { // the deletion is a change of the claim: its finalizer goes with the next pass
				require.NoError(t, err)
			}
			is := &ipamv1.IPClaim{}
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(claim), is))
			assert.Equal(t, test.gone, is.DeletionTimestamp != nil)
		})
	}
}

// While an API server does not serve Agents, it answers 404 as for one that is gone.
func TestAMachineKeepsItsAddressesWhileAgentsAreNotServed(t *testing.T) {
	agents := schema.GroupResource{Group: agentv1.GroupVersion.Group, Resource: "agents"}
	for answer, kept := range map[error]bool{
		apierrors.NewNotFound(agents, "a"): false,
		faultinject.NotServed(agents):      true,
	} {
		scheme := runtime.NewScheme()
		require.NoError(t, ipamv1.AddToScheme(scheme))
		owner := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "a", UID: "a"}}
		made := IPClaims().newClaim(owner, "a-0123456789", domain.AddressPool{Group: ipamv1.GroupVersion.Group, Kind: ipamv1.IPPoolKind, Name: "rack"})
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(made).Build()
		live := interceptor.NewClient(api, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return answer
		}})
		is := &unstructured.Unstructured{}
		is.SetGroupVersionKind(made.GroupVersionKind())
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(made), is))
		err := New(Deps{Client: api, Live: live}).abandon(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(owner)}, []claim{{is, IPClaims()}})
		assert.Equal(t, kept, errors.Is(err, answer))
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(made), is))
		assert.Equal(t, kept, is.GetDeletionTimestamp() == nil)
	}
}
