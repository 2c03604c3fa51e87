// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

func TestTheVersionOfAReleaseImage(t *testing.T) {
	known := []string{"4.1", "4.18", "4.18.3", "45.20251103.3.0"}
	for image, want := range map[string][2]string{
		"quay.io/openshift-release-dev/ocp-release:4.18.3-x86_64":       {"4.18.3", "x86_64"},
		"quay.io/openshift-release-dev/ocp-release:4.18.30-x86_64":      {"4.18", "x86_64"},
		"registry.example.org:5000/release:4.18.0-rc.1-multi":           {"4.18", "multi"},
		"registry.example.org:5000/release:4.19.1-aarch64":              {"4.19.1", "aarch64"},
		"registry.example.org:5000/release:4.19.1-arm64":                {"4.19.1", "aarch64"},
		"registry.example.org/release@sha256:0123":                      {"", "multi"},
		"registry.example.org/release:45.20251103.3.0@sha256:0123abcde": {"45.20251103.3.0", "multi"},
	} {
		version, architecture := release(image, known)
		assert.Equal(t, want, [2]string{version, architecture}, image)
	}
}

func TestMachinesOfEveryArchitectureJoinWhereTheReleaseNamesNone(t *testing.T) {
	for _, architecture := range []string{"multi", "aarch64"} {
		settings := domain.ClusterSettings{CPUArchitecture: "x86_64"}
		(&Reconciler{}).settle(&snapshot{architecture: architecture, install: &hiveextv1.AgentClusterInstall{}, deployment: &hivev1.ClusterDeployment{}}, &settings)
		assert.Equal(t, architecture, settings.CPUArchitecture)
	}
	_, architecture, err := (&Reconciler{}).versionOf(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, "multi", architecture)
}

// Only a cluster that takes nodes is asked at the address of its status: others are found by their names.
func TestHostsReachAClusterWithNodesAtItsAddress(t *testing.T) {
	takesNodes := hivev1.ClusterDeploymentSpec{ClusterMetadata: &hivev1.ClusterMetadata{NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: "access"}}}
	for name, c := range map[string]struct {
		spec hivev1.ClusterDeploymentSpec
		url  string
		want string
	}{
		"a cluster with nodes":            {takesNodes, "https://192.0.2.1:20443", "https://192.0.2.1:20443"},
		"a path is left out":              {takesNodes, "https://192.0.2.1:20443/api?x=y", "https://192.0.2.1:20443"},
		"no address yet":                  {takesNodes, "", ""},
		"an address that is none":         {takesNodes, "http://192.0.2.1:80", ""},
		"a cluster that takes none":       {hivev1.ClusterDeploymentSpec{ClusterMetadata: &hivev1.ClusterMetadata{}}, "https://192.0.2.1:20443", ""},
		"a cluster that is not installed": {hivev1.ClusterDeploymentSpec{}, "https://192.0.2.1:20443", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var settings domain.ClusterSettings
			deployment := &hivev1.ClusterDeployment{Spec: c.spec, Status: hivev1.ClusterDeploymentStatus{APIURL: c.url}}
			(&Reconciler{}).settle(&snapshot{install: &hiveextv1.AgentClusterInstall{}, deployment: deployment}, &settings)
			assert.Equal(t, c.want, settings.APIURL)
		})
	}
}

func TestHostsWithoutARoleFillTheControlPlane(t *testing.T) {
	seen := &snapshot{install: &hiveextv1.AgentClusterInstall{Spec: hiveextv1.AgentClusterInstallSpec{
		ProvisionRequirements: hiveextv1.ProvisionRequirements{ControlPlaneAgents: 2, WorkerAgents: 1},
	}}}
	host := func(role string, state lifecycle.State, approved bool) domain.Host {
		return domain.Host{State: state, HostSettings: domain.HostSettings{Role: role, Approved: approved}}
	}
	seen.hosts = []domain.Host{
		host("worker", lifecycle.Known, true), host("auto-assign", lifecycle.Insufficient, true), host("auto-assign", lifecycle.Known, false), host("master", lifecycle.Known, true),
	}
	assert.Equal(t, counts{controlPlane: 2, controlPlaneReady: 1, workers: 2, workersReady: 2, unapproved: 1}, count(seen))
}

// stored answers with one cluster and no hosts.
type stored struct {
	Service
	cluster domain.Cluster
}

func (s *stored) GetCluster(context.Context, domain.Principal, string) (*domain.Cluster, error) {
	return &s.cluster, nil
}

func (s *stored) ListHosts(context.Context, domain.Principal, domain.HostFilter) (domain.List[domain.Host], error) {
	return domain.List[domain.Host]{}, nil
}

// Image sets of former versions are deleted while clusters of these versions run, and take machines.
func TestAnInstalledClusterNeedsItsImageSetNoMore(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(hivev1.AddToScheme(scheme), hiveextv1.AddToScheme(scheme)))
	deployment := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "blue", UID: "c"}, Spec: hivev1.ClusterDeploymentSpec{
		ClusterInstallRef: &hivev1.ClusterInstallLocalReference{Group: hiveextv1.GroupVersion.Group, Version: "v1beta1", Kind: installKind, Name: "blue"},
	}}
	install := &hiveextv1.AgentClusterInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "blue"}, Spec: hiveextv1.AgentClusterInstallSpec{
		ClusterDeploymentRef: hivev1.LocalObjectReference{Name: "blue"}, ImageSetRef: &hivev1.ClusterImageSetReference{Name: "img-v1.36"},
	}}
	for status, missing := range map[lifecycle.ClusterState]bool{lifecycle.ClusterAddingHosts: false, lifecycle.ClusterInstalled: false, lifecycle.ClusterReady: true} {
		known := &stored{cluster: domain.Cluster{ID: "c", Status: status, ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "1.36", CPUArchitecture: "arm64"}}}
		objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(deployment, install).Build()
		seen, err := New(Deps{Client: objects, Live: objects, Service: known, Versions: []string{"1.37", "1.36"}}).observe(t.Context(), client.ObjectKeyFromObject(install))
		require.NoError(t, err)
		if missing {
			assert.Equal(t, "ClusterImageSetMissing", domain.ReasonOf(seen.obstacle), status)
			continue
		}
		require.NoError(t, seen.obstacle, status)
		assert.Equal(t, []string{"1.36", "arm64"}, []string{seen.version, seen.architecture}, status)
	}
}

// A cluster that the service lost, or has from a backup of before its installation, comes back as installed also where its image set was deleted since.
func TestALostClusterNeedsItsImageSetNoMore(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), hivev1.AddToScheme(scheme), hiveextv1.AddToScheme(scheme)))
	deployment := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "blue", UID: "c"}}
	install := &hiveextv1.AgentClusterInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "blue"}, Spec: hiveextv1.AgentClusterInstallSpec{
		ClusterDeploymentRef: hivev1.LocalObjectReference{Name: "blue"}, ImageSetRef: &hivev1.ClusterImageSetReference{Name: "img-v1.36"},
		ClusterMetadata: &hivev1.ClusterMetadata{ClusterID: "c", InfraID: "blue", AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "blue-admin-kubeconfig"}},
	}}
	hivev1.SetCondition(&install.Status.Conditions, hivev1.Condition{Type: hivev1.ClusterInstallCompleted, Status: corev1.ConditionTrue}, metav1.Now())
	for name, c := range map[string]struct {
		known   Service
		version string
	}{
		"it is not known":                {lost{}, ""},
		"it is known as before that all": {&stored{cluster: domain.Cluster{ID: "c", Status: lifecycle.ClusterReady, ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "1.36", CPUArchitecture: "multi"}}}, "1.36"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(deployment, install).WithStatusSubresource(install).
				WithIndex(install, deploymentIndex, func(client.Object) []string { return []string{"n/blue"} }).Build()
			seen, err := New(Deps{Client: objects, Live: objects, Service: c.known, Versions: []string{"1.37", "1.36"}}).observe(t.Context(), client.ObjectKeyFromObject(install))
			require.NoError(t, err)
			require.NoError(t, seen.obstacle)
			assert.NotNil(t, seen.restored)
			assert.Equal(t, []string{c.version, "multi"}, []string{seen.version, seen.architecture})
		})
	}
}

// A kubeconfig that may not be read keeps the cluster from coming back, and the object from nothing else: its user reads why, and can delete it.
func TestALostClusterWhoseKubeconfigMayNotBeReadSaysSo(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), hivev1.AddToScheme(scheme), hiveextv1.AddToScheme(scheme)))
	deployment := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "blue", UID: "c"}}
	install := &hiveextv1.AgentClusterInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "blue"}, Spec: hiveextv1.AgentClusterInstallSpec{
		ClusterDeploymentRef: hivev1.LocalObjectReference{Name: "blue"}, ClusterMetadata: &hivev1.ClusterMetadata{AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "blue-admin-kubeconfig"}},
	}}
	hivev1.SetCondition(&install.Status.Conditions, hivev1.Condition{Type: hivev1.ClusterInstallCompleted, Status: corev1.ConditionTrue}, metav1.Now())
	objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(deployment, install).WithStatusSubresource(install).
		WithIndex(install, deploymentIndex, func(client.Object) []string { return []string{"n/blue"} }).Build()
	forbidden := interceptor.NewClient(objects, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if _, secret := object.(*corev1.Secret); secret {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("no"))
		}
		return c.Get(ctx, key, object, options...)
	}})
	seen, err := New(Deps{Client: objects, Live: forbidden, Service: lost{}}).observe(t.Context(), client.ObjectKeyFromObject(install))
	require.NoError(t, err)
	require.Equal(t, "SecretForbidden", domain.ReasonOf(seen.obstacle))
	assert.Equal(t, domain.Invalid, domain.KindOf(seen.obstacle))
	assert.ErrorContains(t, seen.obstacle, "blue-admin-kubeconfig")
}

// lost knows no cluster.
type lost struct{ Service }

func (lost) GetCluster(_ context.Context, _ domain.Principal, id string) (*domain.Cluster, error) {
	return nil, domain.RefuseUnknown("Cluster", id)
}
