// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeaddress

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// hosts are those that the service knows.
type hosts struct {
	Service
	known map[domain.HostKey]domain.Host
	err   error
}

// GetHost implements Service.
func (h hosts) GetHost(_ context.Context, _ domain.Principal, key domain.HostKey) (*domain.Host, error) {
	if h.err != nil {
		return nil, h.err
	}
	found, known := h.known[key]
	if !known {
		return nil, domain.RefuseUnknown("Host", key.HostID)
	}
	return &found, nil
}

// ListHosts implements Service.
func (h hosts) ListHosts(_ context.Context, _ domain.Principal, filter domain.HostFilter) (found domain.List[domain.Host], err error) {
	for key, host := range h.known {
		if key.HostID == filter.HostID {
			host.HostKey = key
			found.Items = append(found.Items, host)
		}
	}
	return found, h.err
}

// claimsOf are the claims that a client lists.
type claimsOf struct {
	Claims
	client.Client
}

// List implements client.Reader.
func (c claimsOf) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.Client.List(ctx, list, options...)
}

// Get implements client.Reader.
func (c claimsOf) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.Client.Get(ctx, key, object, options...)
}

func TestOnlyAgentsWithAddressesAreLookedAt(t *testing.T) {
	const id = "00000000-0000-0000-0000-000000000001"
	key := domain.HostKey{InfraEnvID: "e", HostID: id}
	pools := []domain.AddressPool{{Group: "ipam.metal3.io", Kind: "IPPool", Name: "rack"}}
	claim := func(owner string) client.Object {
		return &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "c", Labels: map[string]string{agentv1.ClaimOwnerLabel: owner}}}
	}
	for sentence, test := range map[string]struct {
		named  []agentv1.NodeAddressPool
		absent bool
		host   *domain.Host
		err    error
		claims []client.Object
		want   bool
	}{
		"a machine of an InfraEnv without pools gets none":   {host: &domain.Host{}},
		"claims of others are theirs":                        {host: &domain.Host{}, claims: []client.Object{claim("another")}},
		"the InfraEnv names a pool":                          {named: []agentv1.NodeAddressPool{{Name: "rack"}}, host: &domain.Host{}, want: true},
		"the InfraEnv is not known yet":                      {absent: true, host: &domain.Host{}, want: true},
		"the machine was installed with addresses":           {host: &domain.Host{Addressing: domain.Addressing{Pools: pools}}, want: true},
		"a claim is left of what the machine had":            {host: &domain.Host{}, claims: []client.Object{claim(id)}, want: true},
		"the service does not know the machine":              {want: true},
		"the service cannot say what the machine has":        {err: errors.New("the store is away"), want: true},
		"the service lost the machine, and a claim is there": {claims: []client.Object{claim(id)}, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			scheme := runtime.NewScheme()
			require.NoError(t, agentv1.AddToScheme(scheme))
			require.NoError(t, ipamv1.AddToScheme(scheme))
			one := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{
				Namespace: "metal", Name: id, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "InfraEnv", Name: "e", UID: "e"}},
			}}
			objects := append([]client.Object{one}, test.claims...)
			if !test.absent {
				objects = append(objects, &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "e", UID: "e"}, Spec: agentv1.InfraEnvSpec{NodeAddresses: test.named}})
			}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
				WithIndex(&agentv1.InfraEnv{}, infraenv.UIDIndex, func(o client.Object) []string { return []string{string(o.GetUID())} }).
				WithIndex(&agentv1.Agent{}, agent.HostIndex, func(o client.Object) []string { return []string{agent.HostKey(o).String()} }).Build()
			known := hosts{known: map[domain.HostKey]domain.Host{}, err: test.err}
			if test.host != nil {
				known.known[key] = *test.host
			}
			r := New(Deps{Client: api, Live: api, Claims: claimsOf{Client: api}, Service: known, Kinds: []Kind{IPClaims()}})
			var want []ctrl.Request
			if test.want {
				want = []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(one)}}
			}
			assert.Equal(t, want, r.ofAgent(t.Context(), one))
			assert.ElementsMatch(t, want, r.concerned(t.Context(), domain.Change{Kind: domain.HostChanged, Host: key}))
			assert.Empty(t, r.concerned(t.Context(), domain.Change{Kind: domain.ClusterChanged, Host: key}))
		})
	}
}
