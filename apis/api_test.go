// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// api is a real API server with our CRDs, and a namespace of its own for one test.
type api struct {
	client.Client
	config    *rest.Config
	namespace string
}

func newAPI(t *testing.T) api {
	t.Helper()
	config := controlplanetest.Start(t)
	c := newClient(t, config)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "api-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	return api{Client: c, config: config, namespace: ns.Name}
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	require.NoError(t, hivev1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// object decodes a manifest. Manifests of namespaced kinds get the test's namespace.
func (a api) object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(manifest), &u.Object))
	if u.GetKind() != "ClusterImageSet" {
		u.SetNamespace(a.namespace)
	}
	return u
}

// create creates the manifest's object as kubectl does: unknown fields are errors.
func (a api) create(t *testing.T, manifest string) (*unstructured.Unstructured, error) {
	t.Helper()
	u := a.object(t, manifest)
	return u, client.WithFieldValidation(a.Client, metav1.FieldValidationStrict).Create(t.Context(), u)
}

func (a api) mustCreate(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u, err := a.create(t, manifest)
	require.NoError(t, err)
	return u
}

// set changes one field of an object on the server, by merge patch.
func (a api) set(t *testing.T, u *unstructured.Unstructured, value any, path ...string) error {
	t.Helper()
	before := u.DeepCopy()
	after := u.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(after.Object, value, path...))
	err := a.Patch(t.Context(), after, client.MergeFrom(before))
	if err == nil {
		after.DeepCopyInto(u)
	}
	return err
}

func TestEveryCRDIsEstablished(t *testing.T) {
	a := newAPI(t)
	for _, ours := range ourCRDs(t) {
		c := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, a.Get(t.Context(), client.ObjectKeyFromObject(ours), c))
		conditions := map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{}
		for _, condition := range c.Status.Conditions {
			conditions[condition.Type] = condition.Status
		}
		assert.Equal(t, apiextensionsv1.ConditionTrue, conditions[apiextensionsv1.Established], "%s: %v", c.Name, c.Status.Conditions)
		assert.Equal(t, apiextensionsv1.ConditionTrue, conditions[apiextensionsv1.NamesAccepted], "%s: %v", c.Name, c.Status.Conditions)
		assert.NotEqual(t, apiextensionsv1.ConditionTrue, conditions[apiextensionsv1.NonStructuralSchema], "%s: %v", c.Name, c.Status.Conditions)
	}
}

// assertRefused says that err refuses a request with the sentence.
func assertRefused(t *testing.T, err error, sentence string) {
	t.Helper()
	if assert.Error(t, err, "must be refused with: %s", sentence) {
		assert.Contains(t, strings.Join(strings.Fields(err.Error()), " "), sentence)
	}
}
