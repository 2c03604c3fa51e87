// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// certManagerCRDs are the kinds by which clusterctl recognises that cert-manager is installed. The operator needs nothing of it.
const certManagerCRDs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: issuers.cert-manager.io}
spec:
  group: cert-manager.io
  names: {kind: Issuer, listKind: IssuerList, plural: issuers, singular: issuer}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certificates.cert-manager.io}
spec:
  group: cert-manager.io
  names: {kind: Certificate, listKind: CertificateList, plural: certificates, singular: certificate}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// coreProvider is an entry of the inventory for the release of Cluster API that this test is built with, and its metadata in a local repository.
func coreProvider(t *testing.T, dir string) clusterctlv1.Provider {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", "sigs.k8s.io/cluster-api").Output()
	require.NoError(t, err)
	sources, version, found := strings.Cut(strings.TrimSpace(string(said)), " ")
	require.True(t, found)
	metadata, err := os.ReadFile(filepath.Join(sources, "metadata.yaml"))
	require.NoError(t, err)
	release := filepath.Join(dir, "cluster-api", version)
	require.NoError(t, os.MkdirAll(release, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(release, "metadata.yaml"), metadata, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(release, "core-components.yaml"), nil, 0o600))
	return clusterctlv1.Provider{
		ObjectMeta:   metav1.ObjectMeta{Namespace: "capi-system", Name: "cluster-api", Labels: map[string]string{"clusterctl.cluster.x-k8s.io/core": "inventory"}},
		ProviderName: "cluster-api", Type: string(clusterctlv1.CoreProviderType), Version: version,
	}
}

// repository builds the artefacts of the operator and returns a configuration of clusterctl that names them.
func repository(t *testing.T, dir, version string, core clusterctlv1.Provider) (config string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), filepath.Join("..", "..", "hack", "clusterctl"), version)
	build.Env = append(os.Environ(), "OUT="+dir)
	said, err := build.Output()
	require.NoError(t, err)
	components := strings.TrimSpace(string(said))
	config = filepath.Join(dir, "clusterctl.yaml")
	text := fmt.Sprintf(`providers:
- {name: muster, type: IPAMProvider, url: %q}
- {name: cluster-api, type: CoreProvider, url: %q}
`, components, filepath.Join(dir, "cluster-api", core.Version, "core-components.yaml"))
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	return config
}

// A management cluster gets the operator by "clusterctl init --ipam muster", from artefacts that were built here, into a namespace of the user's choice. The
// operator then serves claims with the rights that clusterctl gave it.
func TestClusterctlInstallsTheOperator(t *testing.T) {
	needPrograms(t)
	dir := t.TempDir()
	crds := filepath.Join(dir, "crds")
	require.NoError(t, os.Mkdir(crds, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(crds, "cert-manager.yaml"), []byte(certManagerCRDs), 0o600))
	p := &plane{name: "init", dir: dir}
	t.Cleanup(p.close)
	require.NoError(t, p.startAPIServer(crds))
	require.NoError(t, p.connect(t.Context()))
	core := coreProvider(t, dir)
	require.NoError(t, p.Create(t.Context(), &unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": core.Namespace},
	}}))
	require.NoError(t, cluster.New(cluster.Kubeconfig{Path: p.kubeconfig}, nil).ProviderInventory().Create(t.Context(), core))

	const version, namespace = "v0.2.0", "addresses"
	ctl, err := clusterctl.New(t.Context(), repository(t, dir, version, core))
	require.NoError(t, err)
	installed, err := ctl.Init(t.Context(), clusterctl.InitOptions{
		Kubeconfig: clusterctl.Kubeconfig{Path: p.kubeconfig}, IPAMProviders: []string{"muster:" + version}, TargetNamespace: namespace,
	})
	require.NoError(t, err)
	require.Len(t, installed, 1)
	assert.Equal(t, []string{"ghcr.io/muster-io/ipam-operator:" + version}, installed[0].Images())
	for _, kind := range []string{"ippools", "ipclaims", "ipaddresses"} {
		p.sameSchema(t, kind+".ipam.metal3.io")
	}

	require.NoError(t, p.startOperatorAs(t.Context(), client.ObjectKey{Namespace: namespace, Name: account.Name}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.logTail())
		}
	})
	f := &fleet{testEnv: &testEnv{source: p}, t: t, namespace: metav1.NamespaceDefault, owners: map[string]metav1.OwnerReference{}}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		probe := &unstructured.Unstructured{Object: claimOn("p")}
		probe.SetGroupVersionKind(claimKind)
		probe.SetNamespace(f.namespace)
		probe.SetName("probe")
		require.NoError(c, p.Create(t.Context(), probe, client.DryRunAll))
	}, patience, 100*time.Millisecond)
	f.create(poolKind, "p", pool("p", object{"pools": span("10.0.0.1", "10.0.0.1")}))
	f.create(claimKind, "c", claimOn("p"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		claim := &unstructured.Unstructured{}
		claim.SetGroupVersionKind(claimKind)
		require.NoError(c, p.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: "c"}, claim))
		name, _, _ := unstructured.NestedString(claim.Object, "status", "address", "name")
		assert.Equal(c, "p-10-0-0-1", name)
	}, patience, 100*time.Millisecond)
}

// sameSchema holds that clusterctl, which replaces variables in what it installs, has changed nothing of a kind's schema.
func (p *plane) sameSchema(t *testing.T, name string) {
	t.Helper()
	group, plural := strings.SplitN(name, ".", 2)[1], strings.SplitN(name, ".", 2)[0]
	ours, err := readObjects(filepath.Join(ourCRDs, group+"_"+plural+".yaml"))
	require.NoError(t, err)
	require.Len(t, ours, 1)
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	require.NoError(t, p.Get(t.Context(), client.ObjectKey{Name: name}, there))
	schemaOf := func(u *unstructured.Unstructured) string {
		versions, _, err := unstructured.NestedFieldNoCopy(u.Object, "spec", "versions")
		require.NoError(t, err)
		text, err := json.Marshal(versions.([]any)[0].(map[string]any)["schema"])
		require.NoError(t, err)
		return string(text)
	}
	assert.JSONEq(t, schemaOf(ours[0]), schemaOf(there), name)
}
