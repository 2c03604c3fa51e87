// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/apis/faultinject"
	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
)

func TestDataIsFoundByWhatItWaitsFor(t *testing.T) {
	a, b := types.NamespacedName{Namespace: "ns", Name: "t-0"}, types.NamespacedName{Namespace: "ns", Name: "t-1"}
	host := object{dataplan.HostKind, types.NamespacedName{Namespace: "ns", Name: "host"}}
	machine := object{dataplan.MachineKind, host.name}
	w := newWaits()
	w.on(a, host)
	w.on(a, host)
	w.on(b, host)
	w.on(b, machine)
	assert.ElementsMatch(t, []types.NamespacedName{a, b}, w.of(host))
	assert.Equal(t, []types.NamespacedName{b}, w.of(machine), "a kind has names of its own")
	w.drop(b)
	assert.Empty(t, w.of(machine))
	w.drop(a)
	assert.Empty(t, w.data)
	assert.Empty(t, w.objects, "data that waits no more is dropped")
}

// answering is an API server that answers each Get with an error.
type answering struct {
	client.Reader
	err error
}

func (a answering) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return a.err
}

// TestDataIsGoneOnlyWhereItsKindIsServed: the answer to a request for a kind that is not served is 404, too. The claims of data that is gone are deleted, with their addresses.
func TestDataIsGoneOnlyWhereItsKindIsServed(t *testing.T) {
	kind := schema.GroupResource{Group: "infrastructure.cluster.x-k8s.io", Resource: "metal3datas"}
	live := func(err error) error {
		r := &Reconciler{Deps: Deps{Live: answering{err: err}}}
		uid, err := r.liveUID(t.Context(), types.NamespacedName{Namespace: "ns", Name: "t-0"})
		assert.Empty(t, uid)
		return err
	}
	require.NoError(t, live(apierrors.NewNotFound(kind, "t-0")))
	require.Error(t, live(faultinject.NotServed(kind)))
}

// TestDataLosesItsClaimOnlyWhereClaimsAreServed has a cache that does not show the claim of data: data without a claim is deleted, and gives back its addresses.
func TestDataLosesItsClaimOnlyWhereClaimsAreServed(t *testing.T) {
	kind := schema.GroupResource{Group: "infrastructure.cluster.x-k8s.io", Resource: "metal3dataclaims"}
	observe := func(err error) error {
		cache := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return apierrors.NewNotFound(kind, "c")
			},
		}).Build()
		r := &Reconciler{Deps: Deps{Client: cache, Live: answering{err: err}}}
		return r.observeClaim(t.Context(), &dataplan.Snapshot{Data: &infrav1.Metal3Data{}})
	}
	require.NoError(t, observe(apierrors.NewNotFound(kind, "c")))
	require.Error(t, observe(faultinject.NotServed(kind)))
}
