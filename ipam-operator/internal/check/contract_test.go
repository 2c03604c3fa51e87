// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
)

type contractTestEnv struct {
	t         *testing.T
	client    client.Client
	namespace string
}

func newContractTestEnv(t *testing.T) *contractTestEnv {
	t.Helper()
	config := controlplanetest.Start(t, controlplanetest.WithCRDs(os.DirFS(needtest.Field(t, "crds", "capi"))))
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, ipamv1.AddToScheme(scheme))
	require.NoError(t, infrav1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "check-"}}
	require.NoError(t, c.Create(t.Context(), namespace))
	return &contractTestEnv{t: t, client: c, namespace: namespace.Name}
}

func (w *contractTestEnv) object(kind, version, name string, spec map[string]any) *unstructured.Unstructured {
	w.t.Helper()
	spec["poolRef"] = map[string]any{"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "p"}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: contractGroup, Version: version, Kind: kind})
	obj.SetNamespace(w.namespace)
	obj.SetName(name)
	require.NoError(w.t, w.client.Create(w.t.Context(), obj))
	return obj
}

// claim makes a claim that says that it has an address.
func (w *contractTestEnv) claim(version, name, address string) *unstructured.Unstructured {
	w.t.Helper()
	claim := w.object(contractClaimKind, version, name, map[string]any{})
	if address != "" {
		claim.Object["status"] = map[string]any{"addressRef": map[string]any{"name": address}}
		require.NoError(w.t, w.client.Status().Update(w.t.Context(), claim))
	}
	return claim
}

func (w *contractTestEnv) address(version, name, ip, claim string) {
	w.t.Helper()
	w.object(contractAddressKind, version, name, map[string]any{"address": ip, "prefix": int64(24), "gateway": "10.0.0.254", "claimRef": map[string]any{"name": claim}})
}

func (w *contractTestEnv) lock(name, ip, kind, claim string) {
	w.t.Helper()
	require.NoError(w.t, w.client.Create(w.t.Context(), &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: ipamv1.IPAddressSpec{
			Address: ipamv1.IPAddressStr(ip), Pool: ipamv1.ObjectReference{Name: "p"}, Claim: ipamv1.ObjectReference{Kind: kind, Name: claim},
		},
	}))
}

func (w *contractTestEnv) findings() []string {
	w.t.Helper()
	findings, err := Run(w.t.Context(), w.client, w.namespace)
	require.NoError(w.t, err)
	out := []string{}
	for _, finding := range findings {
		out = append(out, finding.String())
	}
	return out
}

// TestContractIsChecked uses the definitions that users have, in both versions that the contract is served in.
func TestContractIsChecked(t *testing.T) {
	for _, version := range contractVersions {
		t.Run(version, func(t *testing.T) {
			w := newContractTestEnv(t)
			require.NoError(t, w.client.Create(t.Context(), &ipamv1.IPPool{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p"}, Spec: ipamv1.IPPoolSpec{NamePrefix: "p"},
			}))
			w.claim(version, "fine", "p-10-0-0-1")
			w.lock("p-10-0-0-1", "10.0.0.1", contractClaimKind, "fine")
			w.address(version, "p-10-0-0-1", "10.0.0.1", "fine")
			w.claim(version, "waits", "")
			assert.Empty(t, w.findings())

			w.claim(version, "dangles", "p-10-0-0-9")
			w.claim(version, "envies", "p-10-0-0-1")
			w.lock("p-10-0-0-2", "10.0.0.2", contractClaimKind, "gone")
			w.address(version, "p-10-0-0-3", "10.0.0.3", "fine")
			w.lock("p-10-0-0-4", "10.0.0.4", "", "machine")
			w.address(version, "p-10-0-0-4", "10.0.0.4", "left")
			w.lock("p-10-0-0-5", "10.0.0.5", contractClaimKind, "fine")
			ns := w.namespace
			assert.Equal(t, []string{
				"dangling  IPAddress.ipam.cluster.x-k8s.io " + ns + "/p-10-0-0-3: no IPAddress of ipam.metal3.io locks it",
				"dangling  IPAddressClaim " + ns + "/dangles: its IPAddress p-10-0-0-9 does not exist",
				"double    IPAddress " + ns + "/p-10-0-0-5: IPAddressClaim fine has IPAddress p-10-0-0-1 too",
				"double    IPAddress.ipam.cluster.x-k8s.io " + ns + "/p-10-0-0-3: IPAddressClaim fine has IPAddress p-10-0-0-1 too",
				"double    IPAddress.ipam.cluster.x-k8s.io " + ns + "/p-10-0-0-4: the IPAddress of ipam.metal3.io of its name belongs to IPClaim machine",
				"double    IPAddressClaim " + ns + "/fine: names IPAddress p-10-0-0-1, as IPAddressClaim envies does",
				"mismatch  IPAddressClaim " + ns + "/envies: its IPAddress p-10-0-0-1 belongs to fine",
				"orphan    IPAddress " + ns + "/p-10-0-0-2: its IPAddressClaim gone does not exist",
				"orphan    IPAddress.ipam.cluster.x-k8s.io " + ns + "/p-10-0-0-4: its IPAddressClaim left does not exist",
			}, w.findings())
		})
	}
}
