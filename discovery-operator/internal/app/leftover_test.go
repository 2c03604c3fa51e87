// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// TestWhatAnotherOperatorWroteIntoAStatusGoes takes over a host whose status another operator wrote, as baremetal-operator does: by an update, which owns its fields.
func TestWhatAnotherOperatorWroteIntoAStatusGoes(t *testing.T) {
	w := newTestEnv(t)
	_, h, stop := w.available()
	w.patch(h, withImage)
	w.reaches(h, metal3v1.StateProvisioned)
	stop()
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), h))
	require.NotEmpty(t, h.Status.Provisioning.Image.Checksum)
	h.Status.OperationHistory.Deprovision = metal3v1.OperationMetric{Start: h.Status.LastUpdated, End: h.Status.LastUpdated}
	h.Status.ErrorType, h.Status.ErrorMessage, h.Status.ErrorCount = metal3v1.PowerManagementError, "host is locked", 3
	h.Status.OperationalStatus = metal3v1.OperationalStatusError
	require.NoError(t, w.Status().Update(t.Context(), h, client.FieldOwner("baremetal-operator")))
	w.operate(managing)
	w.is(h, "the error of the other operator is over", func() bool {
		return h.Status.OperationalStatus == metal3v1.OperationalStatusOK && h.Status.ErrorMessage == "" && h.Status.ErrorType == ""
	})

	w.patch(h, noImage)
	w.is(h, "it is deprovisioned", func() bool { return h.Status.Provisioning.State == metal3v1.StateDeprovisioning })
	w.restarts(h.Status.Provisioning.ID)
	w.is(h, "nothing is left of the image", func() bool {
		return h.Status.Provisioning.State == metal3v1.StateAvailable && *h.Status.Provisioning.Image == metal3v1.Image{}
	})
	version := h.ResourceVersion
	w.stays("it is not written again", func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), h))
		return h.ResourceVersion == version
	}, 2*time.Second)
}

// TestHardwareDataOfAnotherOperatorGoesWithItsHost deletes a host of which baremetal-operator made the HardwareData, with the finalizer that it takes off itself where it runs.
func TestHardwareDataOfAnotherOperatorGoesWithItsHost(t *testing.T) {
	w := newTestEnv(t)
	_, h, _ := w.available()
	data := &metal3v1.HardwareData{}
	data.Namespace, data.Name, data.Finalizers = h.Namespace, h.Name, []string{"baremetalhost.metal3.io/hardwareData"}
	other := data.DeepCopy()
	other.Name = "other"
	for _, d := range []*metal3v1.HardwareData{data, other} {
		require.NoError(t, w.Create(t.Context(), d))
		require.NoError(t, w.Delete(t.Context(), d)) // as the garbage collector does
	}
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	w.gone(data)
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(other), other), "that of another host stays")
	w.patch(other, `{"metadata":{"finalizers":null}}`)
}
