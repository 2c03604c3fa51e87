// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// TestCredentialsHaveNoLineFeed has a Secret whose values were written with "echo … | base64".
func TestCredentialsHaveNoLineFeed(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bmc"}, Data: map[string][]byte{"username": []byte("admin\n"), "password": []byte(" hush\r\n")}}
	r := New(Deps{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret).Build()})
	h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h"}}
	h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1/redfish/v1/Systems/1", CredentialsName: "bmc"}
	s, _, err := r.observe(t.Context(), h)
	require.NoError(t, err)
	assert.Equal(t, "admin", s.Secret.Username)
	assert.Equal(t, "hush", s.Secret.Password)
}

// TestTheMachineOfADeletedHostIsCleanedAsItBoots has the node of a machine made anew to clean it, while its host is being deleted.
func TestTheMachineOfADeletedHostIsCleanedAsItBoots(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "network"}, Data: map[string][]byte{"networkData": []byte("links: []\n")}}
	h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h", DeletionTimestamp: &metav1.Time{}}}
	h.Spec.BootMode, h.Spec.PreprovisioningNetworkDataName = "legacy", "network"
	e := &executor{Reconciler: New(Deps{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret).Build()}), host: h}
	m, err := e.machine(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, hoststate.Machine{BootMode: "legacy", Network: map[string]any{"links": []any{}}}, m)
	h.Spec.PreprovisioningNetworkDataName = "gone"
	m, err = e.machine(t.Context(), "")
	require.NoError(t, err, "a deletion does without a Secret that went before the host, as with their namespace")
	assert.Equal(t, hoststate.Machine{BootMode: "legacy"}, m)
	h.DeletionTimestamp = nil
	_, err = e.machine(t.Context(), "")
	require.ErrorIs(t, err, hoststate.ErrNetwork)
	m, err = e.machine(t.Context(), "active")
	require.NoError(t, err)
	assert.Empty(t, m)
}
