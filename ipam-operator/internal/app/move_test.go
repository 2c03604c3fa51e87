// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// mark does what a mover does to an object before it deletes it.
func (w *world) mark(obj client.Object) {
	w.t.Helper()
	patch := `{"metadata":{"annotations":{"` + ipamv1.DeleteForMoveAnnotation + `":""}}}`
	require.NoError(w.t, w.user.Patch(w.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// force takes an object away, whoever still needs it.
func (w *world) force(obj client.Object) {
	w.t.Helper()
	w.delete(obj)
	err := w.user.Patch(w.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	require.NoError(w.t, client.IgnoreNotFound(err))
}

// TestAMoveThatWasCutOff leaves behind what a mover has marked: while the Cluster is paused nothing of it is touched, and when it goes on again every
// claim has the address that it had.
func TestAMoveThatWasCutOff(t *testing.T) {
	w := newWorld(t)
	w.installContract()
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.operator(nil)
	cluster := w.cluster("c", false)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.200")}
		s.ClusterName = new("c")
		s.AllocationStrategy = ipamv1.RandomAllocation
	})
	w.pool("free", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.1.0.10", "10.1.0.20")} })
	had := map[string]string{}
	for _, name := range []string{"gone", "leaving", "marked"} {
		w.claim(name, "p")
		had[name] = w.address(name).Name
		w.eventually(name+" has no finalizer", func() bool { return len(w.getClaim(name).Finalizers) == 1 })
	}
	w.addressClaim("contract", "p")
	contract := w.contractAddress("contract")
	released := w.claim("released", "p")
	w.address("released")

	w.pause(cluster, true)
	w.force(w.address("gone"))
	leaving := w.address("leaving")
	w.mark(leaving)
	w.delete(leaving)
	w.mark(contract)
	w.delete(contract)
	w.mark(w.getClaim("marked"))
	w.mark(released)
	w.delete(released)
	w.claim("witness", "free")
	w.address("witness")
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(leaving), leaving), "what is marked is left to the mover")
	require.NoError(t, w.user.Get(t.Context(), client.ObjectKeyFromObject(contract), contract), "what is marked is left to the mover")
	require.NotNil(t, w.getClaim("released"))
	err := w.user.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: had["gone"]}, &ipamv1.IPAddress{})
	require.True(t, apierrors.IsNotFound(err), "nothing is allocated while the Cluster is paused")

	w.pause(cluster, false)
	w.gone(released)
	w.settled()
	w.eventually("an address is still being deleted", func() bool {
		for _, name := range had {
			address := &ipamv1.IPAddress{}
			err := w.user.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, address)
			if err != nil || address.DeletionTimestamp != nil {
				return false
			}
		}
		again := w.contractObject("IPAddress", contract.GetName())
		return w.user.Get(t.Context(), client.ObjectKeyFromObject(again), again) == nil && again.GetDeletionTimestamp() == nil
	})
	for name, address := range had {
		assert.Equal(t, address, w.address(name).Name)
	}
	w.delete(w.getClaim("marked"))
	w.eventually("a mark keeps a claim for ever", func() bool { return w.getClaim("marked") == nil })
	w.settled()
}
