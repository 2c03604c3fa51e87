// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipaddressclaim_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/app"
)

// oldCRD is as much of a kind as this operator uses, in v1beta1 only. The schema of the status is as strict as that of Cluster API.
const oldCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[2]s.%[3]s
spec:
  group: %[3]s
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s, singular: %[4]s}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              addressRef: {type: object, properties: {name: {type: string}}}
              conditions:
                type: array
                items:
                  type: object
                  required: [lastTransitionTime, status, type]
                  properties:
                    lastTransitionTime: {type: string, format: date-time}
                    status: {type: string}
                    type: {type: string, minLength: 1}
                    reason: {type: string, minLength: 1}
                    severity: {type: string}
                    message: {type: string, minLength: 1}
`

const patience = 2 * time.Minute

// TestTheContractInItsFirstVersion serves claims where Cluster API has v1beta1 of its kinds and nothing newer.
func TestTheContractInItsFirstVersion(t *testing.T) {
	config := controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{
		"claims.yaml":    {Data: fmt.Appendf(nil, oldCRD, "IPAddressClaim", "ipaddressclaims", "ipam.cluster.x-k8s.io", "ipaddressclaim")},
		"addresses.yaml": {Data: fmt.Appendf(nil, oldCRD, "IPAddress", "ipaddresses", "ipam.cluster.x-k8s.io", "ipaddress")},
		"clusters.yaml":  {Data: fmt.Appendf(nil, oldCRD, "Cluster", "clusters", "cluster.x-k8s.io", "cluster")},
	}))
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, ipamv1.AddToScheme(scheme))
	user, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "contract-"}}
	require.NoError(t, user.Create(t.Context(), namespace))
	writes := operate(t, config, namespace.Name)

	create := func(group, kind, name string, spec map[string]any) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		obj.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1beta1", Kind: kind})
		obj.SetNamespace(namespace.Name)
		obj.SetName(name)
		require.NoError(t, user.Create(t.Context(), obj))
		return obj
	}
	claim := func(name, cluster string) *unstructured.Unstructured {
		spec := map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "p"}}
		if cluster != "" {
			spec["clusterName"] = cluster
		}
		return create("ipam.cluster.x-k8s.io", "IPAddressClaim", name, spec)
	}
	address := func(claim *unstructured.Unstructured) string {
		name := ""
		require.Eventually(t, func() bool {
			if user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) != nil {
				return false
			}
			name, _, _ = unstructured.NestedString(claim.Object, "status", "addressRef", "name")
			return name != ""
		}, patience, 20*time.Millisecond)
		return name
	}
	refused := func(claim *unstructured.Unstructured) {
		require.Eventually(t, func() bool {
			return user.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) == nil && condition(claim)["reason"] == ipamv1.ReasonPoolExhausted
		}, patience, 20*time.Millisecond)
	}

	last := ipamv1.IPAddressStr("10.0.0.10")
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "p"}}
	pool.Spec = ipamv1.IPPoolSpec{NamePrefix: "p", Prefix: 24, Pools: []ipamv1.Pool{{Start: &last, End: &last}}}
	require.NoError(t, user.Create(t.Context(), pool))
	waits := claim("waits", "c")
	create("cluster.x-k8s.io", "Cluster", "c", map[string]any{"paused": false})
	assert.Equal(t, "p-10-0-0-10", address(waits))
	assert.Equal(t, "True", condition(waits)["status"])
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(schema.GroupVersionKind{Group: "ipam.cluster.x-k8s.io", Version: "v1beta1", Kind: "IPAddress"})
	require.NoError(t, user.Get(t.Context(), client.ObjectKey{Namespace: namespace.Name, Name: "p-10-0-0-10"}, made))
	assert.Equal(t, "ipam.cluster.x-k8s.io/v1beta1", made.GetOwnerReferences()[0].APIVersion)

	exhausted := claim("exhausted", "")
	refused(exhausted)
	for i := range 3 {
		before := writes.Load()
		require.NoError(t, user.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, i))))
		refused(claim(fmt.Sprint("witness-", i), ""))
		assert.LessOrEqual(t, writes.Load()-before, int64(1), "only the new claim's status is written")
	}
	require.NoError(t, user.Delete(t.Context(), waits))
	served := func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(exhausted.GroupVersionKind())
		if user.List(t.Context(), list, client.InNamespace(namespace.Name)) != nil {
			return false
		}
		for i := range list.Items {
			if condition(&list.Items[i])["status"] == "True" && list.Items[i].GetName() != "waits" {
				return true
			}
		}
		return false
	}
	require.Eventually(t, served, patience, 20*time.Millisecond, "an address that is given back goes to a claim that waits")
}

// operate runs the operator for a namespace, and counts what it writes to the status of IPAddressClaims.
func operate(t *testing.T, config *rest.Config, namespace string) *atomic.Int64 {
	t.Helper()
	var writes atomic.Int64
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/ipaddressclaims/") && strings.HasSuffix(r.URL.Path, "/status") {
				writes.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	options, err := app.ParseOptions([]string{"--namespace=" + namespace, "--metrics-bind-address=0", "--health-probe-bind-address=0", "--log-level=error"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- app.RunWith(ctx, options, config) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return &writes
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func condition(claim *unstructured.Unstructured) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(claim.Object, "status", "conditions")
	if len(conditions) == 0 {
		return nil
	}
	return conditions[0].(map[string]any)
}
