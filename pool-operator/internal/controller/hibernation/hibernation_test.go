// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/outcome"
)

type fixedClock time.Time

func (c fixedClock) Now() time.Time { return time.Time(c) }

func (c fixedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func newScheme(t *testing.T) *runtime.Scheme {
	s := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(s))
	require.NoError(t, hivev1.AddToScheme(s))
	return s
}

// cluster creates a cluster that was installed an hour ago, ran since, and may run for as long as is given.
func cluster(t *testing.T, c client.Client, limit time.Duration, change ...func(*hivev1.ClusterDeployment)) *hivev1.ClusterDeployment {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "sleepy-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: ns.Name}}
	cd.Spec = hivev1.ClusterDeploymentSpec{
		ClusterName: ns.Name, BaseDomain: "example.com", Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}, Installed: true,
		HibernateAfter: &metav1.Duration{Duration: limit},
	}
	for _, f := range change {
		f(cd)
	}
	require.NoError(t, c.Create(t.Context(), cd))
	created := cd.DeepCopy()
	cd.Status.PowerState = hivev1.PowerStateRunning
	cd.Status.InstalledTimestamp = new(metav1.NewTime(time.Now().Add(-time.Hour)))
	require.NoError(t, c.Status().Patch(t.Context(), cd, client.MergeFrom(created)))
	return cd
}

func TestClustersSleepWhenTheirTimeIsOver(t *testing.T) {
	cfg := controlplanetest.Start(t)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: newScheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(t, err)
	ahead := fixedClock(time.Now().Add(2 * time.Hour))
	require.NoError(t, New(Deps{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("hibernation"), Clock: ahead}).SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ending the controller: %v", err)
		}
	})
	c, err := client.New(cfg, client.Options{Scheme: newScheme(t)})
	require.NoError(t, err)

	ofNobody := cluster(t, c, time.Hour)
	notYet := cluster(t, c, 100*time.Hour)
	ref := hivev1.ClusterPoolReference{Namespace: "n", PoolName: "p"}
	unclaimed := cluster(t, c, time.Hour, func(cd *hivev1.ClusterDeployment) { cd.Spec.ClusterPoolRef = new(ref) })
	ref.ClaimName, ref.ClaimUID, ref.ClaimedTimestamp = "c", "u", new(metav1.NewTime(time.Now().Truncate(time.Second)))
	claimed := cluster(t, c, time.Hour, func(cd *hivev1.ClusterDeployment) { cd.Spec.ClusterPoolRef = new(ref) })

	power := func(cd *hivev1.ClusterDeployment) hivev1.PowerState {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
		return cd.Spec.PowerState
	}
	require.Eventually(t, func() bool {
		return power(ofNobody) == hivev1.PowerStateHibernating && power(claimed) == hivev1.PowerStateHibernating && claimed.Status.ClaimedTimestamp != nil
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, ref.ClaimedTimestamp.Unix(), claimed.Status.ClaimedTimestamp.Unix())
	require.Equal(t, hivev1.PowerStateRunning, claimed.Status.PowerState, "the rest of the status belongs to another controller")
	require.Empty(t, power(notYet))
	require.Empty(t, power(unclaimed))
}

func TestAChangeThatKeepsAClusterRunningWins(t *testing.T) {
	cfg := controlplanetest.Start(t)
	c, err := client.New(cfg, client.Options{Scheme: newScheme(t)})
	require.NoError(t, err)
	cd := cluster(t, c, time.Hour)
	old := cd.DeepCopy()
	cd.Spec.HibernateAfter = &metav1.Duration{Duration: 100 * time.Hour}
	require.NoError(t, c.Update(t.Context(), cd))
	r := New(Deps{Client: staleReader{c, old}, Recorder: events.NewFakeRecorder(1), Clock: fixedClock(time.Now().Add(2 * time.Hour))})
	result, err := outcome.Reconciler[ctrl.Request](r).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cd)})
	require.NoError(t, err)
	require.Positive(t, result.RequeueAfter)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
	require.Empty(t, cd.Spec.PowerState)
}

// staleReader is a cache that has not seen the last change.
type staleReader struct {
	client.Client
	old *hivev1.ClusterDeployment
}

func (s staleReader) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	s.old.DeepCopyInto(obj.(*hivev1.ClusterDeployment))
	return nil
}

// TestAClusterSleepsUnderTheDefinitionOfHive takes the definition of ClusterDeployments that is there where Hive installs clusters. It does not have
// status.claimedTimestamp.
func TestAClusterSleepsUnderTheDefinitionOfHive(t *testing.T) {
	text, err := os.ReadFile(needtest.Field(t, "crds", "hive", "hive.openshift.io_clusterdeployments.yaml"))
	require.NoError(t, err)
	cfg, err := clientcmd.BuildConfigFromFlags("", controlplanetest.BareKubeconfig(t))
	require.NoError(t, err)
	s := newScheme(t)
	require.NoError(t, apiextensionsv1.AddToScheme(s))
	c, err := client.New(cfg, client.Options{Scheme: s})
	require.NoError(t, err)
	definition := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(text, definition))
	require.NoError(t, c.Create(t.Context(), definition))
	require.Eventually(t, func() bool { return c.List(t.Context(), &hivev1.ClusterDeploymentList{}) == nil }, time.Minute, 20*time.Millisecond)

	cd := cluster(t, c, time.Hour, func(cd *hivev1.ClusterDeployment) {
		cd.Spec.Platform = hivev1.Platform{None: &runtime.RawExtension{Raw: []byte("{}")}}
		cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "n", PoolName: "p", ClaimName: "c", ClaimedTimestamp: new(metav1.Now())}
	})
	r := New(Deps{Client: c, Recorder: events.NewFakeRecorder(1), Clock: fixedClock(time.Now().Add(2 * time.Hour))})
	pass := func() string {
		_, err := outcome.Reconciler[ctrl.Request](r).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cd)})
		require.NoError(t, err)
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
		return cd.ResourceVersion
	}
	require.Eventually(t, func() bool { pass(); return cd.Spec.PowerState == hivev1.PowerStateHibernating }, time.Minute, 10*time.Millisecond)
	require.Equal(t, hivev1.PowerStateRunning, cd.Status.PowerState)
	first := pass()
	require.Equal(t, first, pass(), "it is not changed again and again")
}
