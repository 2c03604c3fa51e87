// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package capi_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// patience is how long anything may take on a busy machine before it counts as stuck.
const patience = 2 * time.Minute

const upgradedCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: upgrades.capi.example.com
spec:
  group: capi.example.com
  names: {kind: Upgrade, listKind: UpgradeList, plural: upgrades, singular: upgrade}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// The cache of a version that is not served any more goes on with what it had: that a Cluster is paused would be noticed no more.
func TestAnOperatorEndsWhenTheVersionThatItReadsIsServedNoMore(t *testing.T) {
	config := controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"crd.yaml": {Data: []byte(upgradedCRD)}}))
	scheme := runtime.NewScheme()
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	user, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	// run ends with the operator, and says with which version it began.
	run := func() (<-chan string, <-chan error) {
		mgr, err := ctrl.NewManager(config, ctrl.Options{
			Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
		})
		require.NoError(t, err)
		started, ended := make(chan string, 10), make(chan error, 1)
		kind := schema.GroupKind{Group: "capi.example.com", Kind: "Upgrade"}
		require.NoError(t, capi.Discover(mgr, kind, "upgrades.capi.example.com", func(kind schema.GroupVersionKind) error {
			started <- kind.Version
			return nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		go func() { ended <- mgr.Start(ctx) }()
		require.True(t, mgr.GetCache().WaitForCacheSync(ctx))
		return started, ended
	}
	change := func(change func(*apiextensionsv1.CustomResourceDefinition)) {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "upgrades.capi.example.com"}}
		require.NoError(t, user.Get(t.Context(), client.ObjectKeyFromObject(definition), definition))
		before := definition.DeepCopy()
		change(definition)
		require.NoError(t, user.Patch(t.Context(), definition, client.MergeFrom(before)))
	}
	started, ended := run()
	require.Equal(t, "v1beta1", <-started)
	change(func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Versions[0].Storage = false
		next := *d.Spec.Versions[0].DeepCopy()
		next.Name, next.Storage = "v1beta2", true
		d.Spec.Versions = append(d.Spec.Versions, next)
	})
	require.Never(t, func() bool { return len(ended) > 0 }, time.Second, 100*time.Millisecond, "both are served")
	change(func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Served = false })
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "Upgrade.capi.example.com is not served as v1beta1 any more")
	case <-time.After(patience):
		require.Fail(t, "it goes on with what it had")
	}
	started, ended = run()
	require.Equal(t, "v1beta2", <-started)
	require.Never(t, func() bool { return len(ended) > 0 }, time.Second, 100*time.Millisecond, "what it reads is served")
}

const lateCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: lates.known.example.com
spec:
  group: known.example.com
  names: {kind: Late, listKind: LateList, plural: lates, singular: late}
  scope: Namespaced
  versions:
  - name: v1beta2
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// The group of Metal3Machines is that of the operator's own kinds, which it has read before.
func TestAKindThatComesInAnotherVersionOfAKnownGroupIsFound(t *testing.T) {
	known := strings.NewReplacer("lates", "knowns", "late", "known", "Late", "Known", "v1beta2", "v1beta1").Replace(lateCRD)
	config := controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"crd.yaml": {Data: []byte(known)}}))
	scheme := runtime.NewScheme()
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(t, err)
	_, err = mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: "known.example.com", Kind: "Known"})
	require.NoError(t, err)
	started := make(chan string, 1)
	kind := schema.GroupKind{Group: "known.example.com", Kind: "Late"}
	require.NoError(t, capi.Discover(mgr, kind, "lates.known.example.com", func(kind schema.GroupVersionKind) error {
		started <- kind.Version
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = mgr.Start(ctx) }()
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"crd.yaml": {Data: []byte(lateCRD)}}))
	select {
	case version := <-started:
		require.Equal(t, "v1beta2", version)
	case <-time.After(patience):
		require.Fail(t, "it is never found")
	}
}
