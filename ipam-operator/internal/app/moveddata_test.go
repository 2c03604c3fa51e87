// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
)

// TestDataThatWasMovedIsReadyBeforeItsHostIsThere takes from data what a move takes: its status, and the host for a while.
func TestDataThatWasMovedIsReadyBeforeItsHostIsThere(t *testing.T) {
	w := newDataTestEnv(t)
	w.installMachines()
	w.dataPools()
	stop := w.dataOperator(nil)
	w.template("t", nil)
	host := w.host("host-0")
	machine := w.foreign(schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}, "m", func(*unstructured.Unstructured) {})
	metal3Machine := w.foreign(schema.GroupKind{Group: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine"}, "mm", func(m *unstructured.Unstructured) {
		m.SetOwnerReferences(owner(machine))
		m.SetAnnotations(map[string]string{infrav1.HostAnnotation: host.Namespace + "/" + host.Name})
	})
	data := w.rendered(w.dataClaimOf("a", "t", owner(metal3Machine)))
	before := w.secret("mm-networkdata")
	stop()
	require.True(t, w.get(data))
	data.Status = infrav1.Metal3DataStatus{}
	require.NoError(t, w.user.Status().Update(t.Context(), data))
	w.delete(host)
	w.gone(host)

	w.dataOperator(nil)
	w.eventually("the data is not ready", func() bool { return w.get(data) && data.Status.Ready })
	assert.Nil(t, data.Status.ErrorMessage)
	assert.Equal(t, before.UID, w.secret("mm-networkdata").UID)

	w.delete(before)
	w.fails(data, "Waiting for BareMetalHost to become available")
}

// TestRestoredDataStaysWithItsClaim saves the network data of a machine as backup tools do, removes it, and creates it again without status and owners: with the finalizers, as
// hack/restore does, and without them, as Velero does. The claim comes last, from a user who writes its machine into it.
func TestRestoredDataStaysWithItsClaim(t *testing.T) {
	for name, change := range map[string]func(obj *unstructured.Unstructured){
		"with finalizers":    func(*unstructured.Unstructured) {},
		"without finalizers": func(obj *unstructured.Unstructured) { obj.SetFinalizers(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newDataTestEnv(t)
			w.dataPools()
			stop := w.dataOperator(nil)
			w.template("t", nil)
			host := w.host("host-0")
			w.rendered(w.dataClaim("a", "t", host))
			before := w.secret("host-0-networkdata")
			w.eventually("the pool does not show the address", func() bool { return len(w.getPool("bm").Status.Allocations) == 1 })
			stop()
			addresses := w.save("IPClaim", "IPAddress")
			data, claims := w.save("Metal3Data"), w.save("Metal3DataClaim")
			w.gone(before)
			for _, obj := range slices.Concat(addresses, data, claims) {
				change(&obj)
			}

			w.restore(slices.Concat(addresses, data))
			w.claim("other", "bm") // must not get the address
			w.dataOperator(nil)
			restored := &infrav1.Metal3Data{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "t-0"}}
			w.fails(restored, "Metal3DataClaim a not found")
			claims[0].SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Name: host.Name, UID: host.UID}})
			w.restore(claims)
			claim := &infrav1.Metal3DataClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "a"}}
			assert.Equal(t, "t-0", w.rendered(claim).Name)
			assert.Equal(t, before.Data, w.secret("host-0-networkdata").Data)
			assert.Len(t, w.list("Metal3Data"), 1)
			require.True(t, w.get(restored))
			assert.Len(t, restored.OwnerReferences, 3)
			w.checkIPClaims(restored)
			assert.NotEqual(t, w.address("t-0-bm").Spec.Address, w.address("other").Spec.Address)

			w.delete(w.getClaim("other"))
			w.delete(claim)
			w.nothingLeft()
		})
	}
}
