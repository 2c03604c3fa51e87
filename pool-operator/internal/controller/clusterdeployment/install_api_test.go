// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"context"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/provision/contract"
)

// someInstall is a kind of install object that the operator does not know.
const someInstall = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: someinstalls.install.example.org}
spec:
  group: install.example.org
  names: {kind: SomeInstall, listKind: SomeInstallList, plural: someinstalls, singular: someinstall}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// startInstallController runs the controller for as long as the test.
func startInstallController(t *testing.T) client.Client {
	t.Helper()
	restConfig := controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"someinstall.yaml": {Data: []byte(someInstall)}}))
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(t, err)
	require.NoError(t, clusterdeployment.NewInstall(clusterdeployment.InstallDeps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Informers: mgr.GetCache(), Recorder: mgr.GetEventRecorder("test"), Clock: clock.RealClock{},
	}).SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return newAdmin(t, restConfig)
}

func newSomeInstall(key client.ObjectKey) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "install.example.org/v1", "kind": "SomeInstall",
		"spec": map[string]any{"clusterDeploymentRef": map[string]any{"name": key.Name}, "somethingElse": "kept"},
	}}
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	return object
}

// reach writes what an installer writes at a station.
func reach(ctx context.Context, admin client.Client, key client.ObjectKey, station contract.Station) error {
	object := newSomeInstall(key)
	if err := admin.Get(ctx, key, object); err != nil {
		return err
	}
	install := &hivev1.ClusterInstall{}
	said := map[contract.Station]map[string]corev1.ConditionStatus{
		contract.Blocked:  {"RequirementsMet": "False", "Completed": "False", "Failed": "False", "Stopped": "False"},
		contract.Working:  {"RequirementsMet": "True", "Completed": "False", "Failed": "False", "Stopped": "False"},
		contract.Retrying: {"RequirementsMet": "True", "Completed": "False", "Failed": "True", "Stopped": "False"},
		contract.Done:     {"RequirementsMet": "True", "Completed": "True", "Failed": "False", "Stopped": "True"},
		contract.GivenUp:  {"RequirementsMet": "True", "Completed": "False", "Failed": "True", "Stopped": "True"},
	}[station]
	for conditionType, status := range said {
		install.Status.Conditions = append(install.Status.Conditions, hivev1.Condition{
			Type: conditionType, Status: status, Reason: "SomeReason", Message: "at " + string(station),
			LastProbeTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		})
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(install)
	if err != nil {
		return err
	}
	if station == contract.Done {
		metadata := map[string]any{"clusterID": "id", "infraID": "blue-1", "adminKubeconfigSecretRef": map[string]any{"name": "blue-kubeconfig"}}
		if err := unstructured.SetNestedMap(object.Object, metadata, "spec", "clusterMetadata"); err != nil {
			return err
		}
		if err := admin.Update(ctx, object); err != nil {
			return err
		}
	}
	object.Object["status"] = content["status"]
	return admin.Status().Update(ctx, object)
}

func TestInstallContract(t *testing.T) {
	admin := startInstallController(t)
	contract.RunInstaller(t, contract.Installer{
		Client:   admin,
		Kind:     hivev1.ClusterInstallLocalReference{Group: "install.example.org", Version: "v1", Kind: "SomeInstall"},
		Platform: hivev1.Platform{None: &runtime.RawExtension{Raw: []byte("{}")}},
		Namespace: func(t *testing.T) string {
			t.Helper()
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "install-"}}
			require.NoError(t, admin.Create(t.Context(), namespace))
			return namespace.Name
		},
		Create: func(ctx context.Context, key client.ObjectKey) error { return admin.Create(ctx, newSomeInstall(key)) },
		Reach: func(ctx context.Context, key client.ObjectKey, station contract.Station) error {
			return reach(ctx, admin, key, station)
		},
		Timeout: patience,
	})
}

func TestAKindOfInstallObjectThatDoesNotExistIsSaidToBeMissing(t *testing.T) {
	admin := startInstallController(t)
	cluster := createCluster(t, admin, func(c *hivev1.ClusterDeployment) {
		c.Spec.ClusterInstallRef = &hivev1.ClusterInstallLocalReference{Group: "nowhere.example.org", Version: "v1", Kind: "NoInstall", Name: "x"}
	})
	require.Eventually(t, func() bool {
		require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
		c := hivev1.FindCondition(cluster.Status.Conditions, hivev1.ClusterDeploymentRequirementsMet)
		return c != nil && c.Message == "There is no kind NoInstall in nowhere.example.org/v1, which spec.clusterInstallRef names."
	}, patience, 50*time.Millisecond)
	assert.Equal(t, cluster.Spec.Platform.Name(), cluster.Labels[hivev1.LabelClusterPlatform], "the column PLATFORM is not blank")
}
