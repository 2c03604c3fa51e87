// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	infrav1beta2 "github.com/muster-io/muster/apis/infrastructure/v1beta2"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/porttest"
)

// templateOfMetal3 is a manifest as other providers' users have it.
const templateOfMetal3 = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: Metal3DataTemplate
metadata: {name: newer}
spec:
  metaData:
    ipAddressesFromPool:
    - {key: ip, name: prov, apiGroup: ipam.metal3.io, kind: IPPool}
  networkData:
    links:
      bonds:
      - {id: bond0, bondMode: active-backup, macAddress: {string: "52:54:00:00:00:09"}, parameters: [{name: miimon, value: 100}]}
    networks:
      ipv4:
      - {id: lan, link: bond0, fromPoolRef: {name: bm}}
`

// serveV1beta2 changes the definition of templates as deploy/crds/network-data does, until the test ends.
func (w *testEnv) serveV1beta2() *apiextensionsv1.CustomResourceDefinition {
	w.t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "crds", "network-data", "kustomization.yaml"))
	require.NoError(w.t, err)
	var kustomization struct {
		Patches []struct {
			Target struct{ Name string }
			Patch  string
		}
	}
	require.NoError(w.t, yaml.Unmarshal(content, &kustomization))
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: templateDefinition}}
	for _, p := range kustomization.Patches {
		if p.Target.Name == templateDefinition {
			patch, err := yaml.YAMLToJSON([]byte(p.Patch))
			require.NoError(w.t, err)
			require.NoError(w.t, w.user.Patch(w.t.Context(), definition, client.RawPatch(types.JSONPatchType, patch)))
		}
	}
	require.NotNil(w.t, definition.Spec.Conversion)
	w.t.Cleanup(func() {
		assert.NoError(w.t, w.user.Patch(context.Background(), definition, client.RawPatch(types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/versions/1/served","value":false},{"op":"replace","path":"/spec/conversion","value":{"strategy":"None"}}]`))))
	})
	return definition
}

// update replaces an object, beside the operator's own writes.
func (w *testEnv) update(object client.Object, change func()) {
	w.t.Helper()
	require.NoError(w.t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		require.True(w.t, w.get(object))
		change()
		return w.user.Update(w.t.Context(), object)
	}))
}

func (w *testEnv) convertingOperator() {
	w.t.Helper()
	options := testOptions(w.namespace)
	options.NetworkData, options.WebhookNamespace = true, "muster-ipam-operator"
	options.WebhookBindAddress = "127.0.0.1:" + porttest.Free(w.t)
	options.WebhookURL = "https://" + options.WebhookBindAddress
	w.operatorWith(options, nil)
}

func (w *testEnv) storeAs(definition *apiextensionsv1.CustomResourceDefinition, version string) {
	w.t.Helper()
	before := definition.DeepCopy()
	for i := range definition.Spec.Versions {
		definition.Spec.Versions[i].Storage = definition.Spec.Versions[i].Name == version
	}
	require.NoError(w.t, w.user.Patch(w.t.Context(), definition, client.MergeFrom(before)))
}

// TestTemplatesThatAnotherProviderStoredAreServed starts an operator without a certificate where templates are stored as v1beta2: its caches need its own conversion.
func TestTemplatesThatAnotherProviderStoredAreServed(t *testing.T) {
	w := newDataTestEnv(t)
	w.dataPools()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "muster-ipam-operator", Name: webhookName}}
	require.NoError(t, client.IgnoreNotFound(w.user.Delete(t.Context(), secret)))
	definition := w.serveV1beta2()
	w.storeAs(definition, "v1beta2")
	manifest := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(templateOfMetal3), &manifest.Object))
	manifest.SetNamespace(w.namespace)
	w.eventually("the template cannot be created", func() bool { return w.user.Create(t.Context(), manifest.DeepCopy()) == nil })
	w.storeAs(definition, "v1beta1")

	w.convertingOperator()
	w.rendered(w.dataClaim("claim-0", "newer", w.host("host-0")))
	stored := &infrav1.Metal3DataTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "newer"}}
	require.True(t, w.get(stored))
	assert.Equal(t, "100", string(stored.Spec.NetworkData.Links.Bonds[0].Parameters["miimon"].Raw))
	require.NoError(t, w.user.Delete(t.Context(), &infrav1.Metal3DataClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "claim-0"}}))
	require.NoError(t, w.user.Delete(t.Context(), stored))
	w.eventually("the template stays", func() bool { return !w.get(stored) })
}

// TestTemplatesAreServedInBothVersions stores templates as v1beta1, and reads, changes and renders them in both versions.
func TestTemplatesAreServedInBothVersions(t *testing.T) {
	w := newDataTestEnv(t)
	w.dataPools()
	older := w.template("older", func(s *infrav1.Metal3DataTemplateSpec) {
		s.TemplateReference = "former"
		s.MetaData.IPAddressesFromIPPool, s.MetaData.IPAddressesFromPool = nil, s.MetaData.IPAddressesFromIPPool
	})
	definition := w.serveV1beta2()
	w.convertingOperator()

	served := &infrav1beta2.Metal3DataTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "older"}}
	w.eventually("the template is not served as v1beta2", func() bool { return w.user.Get(t.Context(), client.ObjectKeyFromObject(served), served) == nil })
	assert.Equal(t, []infrav1.MetaDataFromPool{{Key: "ip", Name: "prov"}}, served.Spec.MetaData.IPAddressesFromPool)

	w.update(served, func() { served.Labels = map[string]string{"zone": "a"} })
	require.True(t, w.get(older))
	assert.Equal(t, "a", older.Labels["zone"])
	assert.NotContains(t, older.Annotations, infrav1beta2.StoredSpecAnnotation)
	assert.Equal(t, "former", older.Spec.TemplateReference, "v1beta2 cannot say it, and loses nothing")
	w.update(older, func() { older.Labels = nil }) // the v1beta1 manifest fits the template still

	require.True(t, w.get(served))
	changed := served.DeepCopy()
	changed.Spec.MetaData.IPAddressesFromPool = nil
	require.ErrorContains(t, w.user.Patch(t.Context(), changed, client.MergeFrom(served)), "metaData cannot be modified; create another template")

	t.Run("a manifest of v1beta2 is rendered", func(t *testing.T) {
		manifest := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(templateOfMetal3), &manifest.Object))
		manifest.SetNamespace(w.namespace)
		require.NoError(t, client.WithFieldValidation(w.user, metav1.FieldValidationStrict).Create(t.Context(), manifest))
		host := w.host("host-0")
		claim := &infrav1beta2.Metal3DataClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "claim-0", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: metal3v1.GroupVersion.String(), Kind: "BareMetalHost", Name: host.Name, UID: host.UID},
		}}}
		claim.Spec.Template.Name = "newer"
		require.NoError(t, w.user.Create(t.Context(), claim))
		w.rendered(&infrav1.Metal3DataClaim{ObjectMeta: claim.ObjectMeta})
		assert.Contains(t, string(w.secret("host-0-networkdata").Data[infrav1.NetworkDataKey]), "bond_miimon: 100")
		assert.Contains(t, string(w.secret("host-0-metadata").Data[infrav1.MetaDataKey]), "ip: 10.0.0.10")

		newer := &infrav1beta2.Metal3DataTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "newer"}}
		w.eventually("the index is not in the status", func() bool { return w.get(newer) && len(newer.Status.Indexes) == 1 })
		assert.Equal(t, infrav1beta2.IndexEntry{Name: "claim-0", Index: 0}, newer.Status.Indexes[0])
	})
	t.Run("a definition that is applied anew leads to the operator again", func(t *testing.T) {
		require.NoError(t, w.user.Patch(t.Context(), definition, client.RawPatch(types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/conversion/webhook/clientConfig","value":{"service":{"namespace":"elsewhere","name":"ipam-operator-webhook"}}}]`))))
		w.eventually("the template is not served as v1beta2", func() bool { return w.user.Get(t.Context(), client.ObjectKeyFromObject(served), served) == nil })
	})
}
