// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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

// TestACustomDeploymentOfAnotherOperatorEnds takes the method away by which baremetal-operator has installed a machine, as Cluster API's provider for metal3 does when it
// gives a host back, and changes it.
func TestACustomDeploymentOfAnotherOperatorEnds(t *testing.T) {
	w := newTestEnv(t)
	_, h, stop := w.available()
	w.patch(h, withImage)
	w.reaches(h, metal3v1.StateProvisioned)
	stop()
	w.patch(h, `{"spec":{"image":null,"customDeploy":{"method":"install_x"}}}`)
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), h))
	h.Status.Provisioning.Image, h.Status.Provisioning.CustomDeploy = &metal3v1.Image{}, &metal3v1.CustomDeploy{Method: "install_x"}
	require.NoError(t, w.Status().Update(t.Context(), h, client.FieldOwner("baremetal-operator")))
	w.operate(managing)
	w.stays("what is wanted stays deployed", func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), h))
		return h.Status.Provisioning.State == metal3v1.StateProvisioned
	}, time.Second)

	w.patch(h, `{"spec":{"customDeploy":null}}`)
	w.is(h, "it is deprovisioned", func() bool { return h.Status.Provisioning.State == metal3v1.StateDeprovisioning })
	w.restarts(h.Status.Provisioning.ID)
	w.is(h, "nothing is left of the method", func() bool {
		return h.Status.Provisioning.State == metal3v1.StateAvailable && h.Status.Provisioning.CustomDeploy == nil
	})
	w.patch(h, withImage)
	w.reaches(h, metal3v1.StateProvisioned)
}

// TestFinalizersOfAnotherOperatorGoWithTheHost deletes a host for which baremetal-operator has put finalizers on a Secret with credentials, one with network data for the ramdisk,
// a DataImage and a PreprovisioningImage. It takes them off itself where it runs.
func TestFinalizersOfAnotherOperatorGoWithTheHost(t *testing.T) {
	w := newTestEnv(t)
	_, h, _ := w.available()
	image := leftover(w, h, "DataImage", "dataimage.metal3.io", "example.com/other")
	ramdisk := leftover(w, h, "PreprovisioningImage", "baremetalhost.metal3.io/preprovisioningImage", "preprovisioningimage.metal3.io")
	secret := func(name string) *corev1.Secret {
		s := &corev1.Secret{Data: map[string][]byte{"username": []byte("admin"), "password": []byte("right")}}
		s.Namespace, s.Name, s.Finalizers = h.Namespace, name, []string{"baremetalhost.metal3.io/secret"}
		require.NoError(t, w.Create(t.Context(), s))
		return s
	}
	bmc, network, other := secret("bmc"), secret("network"), secret("other")
	w.patch(h, `{"spec":{"bmc":{"address":"redfish://192.0.2.1/redfish/v1/Systems/1","credentialsName":"bmc"},"preprovisioningNetworkDataName":"network"}}`)
	w.is(h, "its credentials are accepted", func() bool { return h.Status.GoodCredentials.Reference != nil })
	for _, o := range []client.Object{h, bmc, network, other, image, ramdisk} {
		require.NoError(t, w.Delete(t.Context(), o)) // as the deletion of a namespace does
	}
	w.gone(h)
	w.gone(bmc)
	w.gone(network)
	w.gone(ramdisk)
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(image), image))
	assert.Equal(t, []string{"example.com/other"}, image.GetFinalizers(), "what others wait for is theirs")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(other), other), "a Secret of another host stays")
	for _, o := range []client.Object{other, image} {
		require.NoError(t, w.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	}
}

// TestAHostGoesWithoutTheRightToTakeFinalizersOff deletes a host where the operator has no right to change Secrets and DataImages.
func TestAHostGoesWithoutTheRightToTakeFinalizersOff(t *testing.T) {
	w := newTestEnv(t)
	_, h, _ := w.available()
	defined(w, "DataImage")
	secret := &corev1.Secret{Data: map[string][]byte{"networkData": []byte("links: []")}}
	secret.Namespace, secret.Name, secret.Finalizers = h.Namespace, "network", []string{metal3v1.SecretFinalizer}
	require.NoError(t, w.Create(t.Context(), secret))
	w.patch(h, `{"spec":{"preprovisioningNetworkDataName":"network"}}`)
	right := &rbacv1.ClusterRoleBinding{}
	right.Name = w.system + "-manage-hosts"
	require.NoError(t, w.Delete(t.Context(), right))
	w.eventually("the right is gone", func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: w.account(), ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: h.Namespace, Verb: "patch", Resource: "secrets"},
		}}
		return w.Create(t.Context(), review) == nil && !review.Status.Allowed
	})
	require.NoError(t, w.Delete(t.Context(), secret))
	require.NoError(t, w.Delete(t.Context(), h))
	w.hasEvent(h, metal3v1.EventFinalizerKept, "the DataImage "+h.Name+": remove its finalizer "+metal3v1.DataImageFinalizer)
	w.hasEvent(h, metal3v1.EventFinalizerKept, "the Secret network: remove its finalizer "+metal3v1.SecretFinalizer)
	w.gone(h)
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	w.patch(secret, `{"metadata":{"finalizers":null}}`)
}

// leftover makes an object of a kind of baremetal-operator that has the name of a host.
func leftover(w *testEnv, h *metal3v1.BareMetalHost, kind string, finalizers ...string) *unstructured.Unstructured {
	w.Helper()
	defined(w, kind)
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "metal3.io/v1alpha1", "kind": kind}}
	o.SetNamespace(h.Namespace)
	o.SetName(h.Name)
	o.SetFinalizers(finalizers)
	require.Eventually(w, func() bool { return w.Create(w.Context(), o) == nil }, patience, 100*time.Millisecond)
	return o
}

// defined makes the definition of a kind, as far as it matters here.
func defined(w *testEnv, kind string) {
	w.Helper()
	one := strings.ToLower(kind)
	require.NoError(w, client.IgnoreAlreadyExists(w.Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name": one + "s.metal3.io",
		},
		"spec": map[string]any{
			"group": "metal3.io", "scope": "Namespaced",
			"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": one + "s", "singular": one},
			"versions": []any{map[string]any{
				"name": "v1alpha1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}})))
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
