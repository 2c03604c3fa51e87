// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
