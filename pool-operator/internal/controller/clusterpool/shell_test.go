// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/apis/faultinject"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/controller/clusterpool"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// unknownProgress is a cache that cannot say how far it has come, so that every pass after the first ticket has to read from the API server in the end.
type unknownProgress struct{}

func (unknownProgress) View(context.Context) (hivev1.ClusterPoolObservation, error) {
	return hivev1.ClusterPoolObservation{}, nil
}

type setClock struct{ now time.Time }

func (c *setClock) Now() time.Time { return c.now }

func (c *setClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// stillProgress is a cache to which nothing happens: it stays where it is until the next bookmark, which may be a minute away.
type stillProgress struct{ at string }

func (s *stillProgress) View(context.Context) (hivev1.ClusterPoolObservation, error) {
	return hivev1.ClusterPoolObservation{ClusterDeployments: s.at, ClusterClaims: s.at}, nil
}

// shell is a reconciler over a fake client.
type shell struct {
	t      *testing.T
	client client.Client
	r      *clusterpool.Reconciler
	clock  *setClock
}

func newShell(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *shell {
	t.Helper()
	s := &shell{t: t, clock: &setClock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}}
	builder := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(objects...).WithStatusSubresource(&hivev1.ClusterPool{}, &hivev1.ClusterDeployment{})
	clusterpool.FakeIndexes(func(o client.Object, field string, values client.IndexerFunc) { builder.WithIndex(o, field, values) })
	s.client = builder.WithInterceptorFuncs(funcs).Build()
	s.r = clusterpool.New(clusterpool.Deps{
		Client: s.client, Metadata: s.client, Live: s.client, Progress: unknownProgress{}, Recorder: events.NewFakeRecorder(100), Clock: s.clock, Meter: noMeter{}, Writers: 1,
	})
	return s
}

func (s *shell) reconcile(name string) (ctrl.Result, error) {
	s.clock.now = s.clock.now.Add(2 * time.Second)
	return outcome.Reconciler[ctrl.Request](s.r).Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: testobj.Namespace, Name: name}})
}

// passes reconciles n times and returns the last error.
func (s *shell) passes(name string, n int) (err error) {
	for range n {
		_, err = s.reconcile(name)
	}
	return err
}

func (s *shell) clusters() []hivev1.ClusterDeployment {
	s.t.Helper()
	list := &hivev1.ClusterDeploymentList{}
	require.NoError(s.t, s.client.List(s.t.Context(), list))
	return list.Items
}

func (s *shell) pool(name string) *hivev1.ClusterPool {
	s.t.Helper()
	pool := &hivev1.ClusterPool{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Namespace: testobj.Namespace, Name: name}, pool))
	return pool
}

func TestOneFailureDoesNotStopTheOthers(t *testing.T) {
	failing := 0
	s := newShell(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		if _, isCluster := o.(*hivev1.ClusterDeployment); isCluster && failing == 0 {
			failing++
			return errors.New("the wire is cut")
		}
		return c.Create(ctx, o, options...)
	}}, testobj.Pool("p", testobj.Size(3)), testobj.ClusterImageSet(testobj.ImageSetName))
	var err error
	for range 4 {
		if _, err = s.reconcile("p"); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "the wire is cut")
	require.Len(t, s.clusters(), 2, "the other two were created")
	require.NoError(t, s.passes("p", 12))
	require.Len(t, s.clusters(), 3, "and the third when it is tried again, under the name that was recorded")
}

func TestARefusedClusterIsWithdrawn(t *testing.T) {
	refuse := true
	s := newShell(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		if _, isCluster := o.(*hivev1.ClusterDeployment); isCluster && refuse {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "clusterdeployments"}, o.GetName(), errors.New("over quota"))
		}
		return c.Create(ctx, o, options...)
	}}, testobj.Pool("p", testobj.Size(1)), testobj.ClusterImageSet(testobj.ImageSetName))
	require.NoError(t, s.passes("p", 10))
	status := s.pool("p").Status
	require.Empty(t, s.clusters())
	require.Equal(t, int32(1), status.Provisioning.ConsecutiveFailures)
	require.Equal(t, "CreationRefused", status.Provisioning.LastFailureReason)
	require.Contains(t, status.Provisioning.LastFailureMessage, "over quota")
	refuse = false
	require.NoError(t, s.passes("p", 80))
	require.Len(t, s.clusters(), 1)
	require.Empty(t, s.pool("p").Status.Operations)
}

// An API server that does not serve the kind for the moment answers 404, as for a cluster that is not there: the cluster that was refused may be there all the same.
func TestARefusedClusterIsNotWithdrawnWhileClustersAreNotServed(t *testing.T) {
	resource, served := schema.GroupResource{Group: hivev1.GroupVersion.Group, Resource: "clusterdeployments"}, false
	s := newShell(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, isCluster := o.(*hivev1.ClusterDeployment); isCluster {
				return apierrors.NewForbidden(resource, o.GetName(), errors.New("over quota"))
			}
			return c.Create(ctx, o, options...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if o.GetObjectKind().GroupVersionKind().Kind == "ClusterDeployment" && !served {
				return faultinject.NotServed(resource)
			}
			return c.Get(ctx, key, o, options...)
		},
	}, testobj.Pool("p", testobj.Size(1)), testobj.ClusterImageSet(testobj.ImageSetName))
	require.NoError(t, s.passes("p", 10))
	refused := s.pool("p").Status.Operations[0].Namespace
	withdrawn := func() bool {
		return !slices.ContainsFunc(s.pool("p").Status.Operations, func(op hivev1.ClusterPoolOperation) bool { return op.Namespace == refused })
	}
	_ = s.passes("p", 80) // some of which end with the answer
	require.False(t, withdrawn())
	served = true
	require.NoError(t, s.passes("p", 10))
	require.True(t, withdrawn())
}

func TestAReplicaThatTakesOverDoesNotWaitForABookmark(t *testing.T) {
	s := newShell(t, interceptor.Funcs{}, testobj.Pool("p", testobj.Size(1), testobj.Held(), func(p *hivev1.ClusterPool) {
		p.Status.Observed = &hivev1.ClusterPoolObservation{ClusterDeployments: "900", ClusterClaims: "900"}
	}), testobj.ClusterImageSet(testobj.ImageSetName))
	s.r.Progress = &stillProgress{at: "400"}
	require.NoError(t, s.passes("p", 1))
	require.Empty(t, s.clusters(), "it first gives the cache a chance")
	require.NoError(t, s.passes("p", 4))
	require.Len(t, s.clusters(), 1, "and then reads from the API server")
}

func TestALostTicketHasNoEffect(t *testing.T) {
	lose := true
	s := newShell(t, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
		if lose {
			return apierrors.NewConflict(schema.GroupResource{Resource: "clusterpools"}, o.GetName(), errors.New("another replica was faster"))
		}
		return c.SubResource(sub).Patch(ctx, o, p, options...)
	}}, testobj.Pool("p", testobj.Size(2), testobj.Held()), testobj.ClusterImageSet(testobj.ImageSetName))
	result, err := s.reconcile("p")
	require.NoError(t, err, "a conflict is normal")
	require.NotZero(t, result.RequeueAfter)
	require.Empty(t, s.clusters())
	lose = false
	require.NoError(t, s.passes("p", 1))
	require.Len(t, s.clusters(), 2)
}

func TestACreationIsRepeatedOnlyWhileItsTicketStands(t *testing.T) {
	changes := 0
	s := newShell(t, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
		err := c.SubResource(sub).Patch(ctx, o, p, options...)
		if changes++; err == nil && changes == 1 {
			err = c.Patch(ctx, testobj.Pool("p"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"other-client":"was here"}}}`)))
		}
		return err
	}}, testobj.Pool("p", testobj.Size(1), testobj.Held(), func(p *hivev1.ClusterPool) {
		p.Status.Operations = []hivev1.ClusterPoolOperation{{Kind: hivev1.OperationCreate, Namespace: "p-abcde", ClusterName: "p-abcde", Why: "BelowTarget"}}
	}), testobj.ClusterImageSet(testobj.ImageSetName))
	result, err := s.reconcile("p")
	require.NoError(t, err, "a conflict is normal")
	require.NotZero(t, result.RequeueAfter)
	require.Equal(t, 1, changes)
	require.Empty(t, s.clusters(), "the cluster may have been created, deleted and forgotten meanwhile")
	require.Error(t, s.client.Get(t.Context(), client.ObjectKey{Name: "p-abcde"}, &corev1.Namespace{}))
	require.NoError(t, s.passes("p", 5))
	require.Len(t, s.clusters(), 1)
	require.Equal(t, "p-abcde", s.clusters()[0].Namespace)
}

func TestAForeignNamespaceIsLeftAlone(t *testing.T) {
	var stolen string
	s := newShell(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		if _, isNamespace := o.(*corev1.Namespace); isNamespace && stolen == "" {
			stolen = o.GetName()
			if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stolen}}); err != nil {
				return err
			}
		}
		return c.Create(ctx, o, options...)
	}}, testobj.Pool("p", testobj.Size(1)), testobj.ClusterImageSet(testobj.ImageSetName))
	require.NoError(t, s.passes("p", 80))
	clusters := s.clusters()
	require.Len(t, clusters, 1)
	require.NotEqual(t, stolen, clusters[0].Namespace)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: stolen}, &corev1.Namespace{}), "it is still there")
}

func TestNamespacesOfTheOperatorsOwnPodsAdmitRestrictedOnesOnly(t *testing.T) {
	for name, c := range map[string]struct {
		pool testobj.PoolOption
		want string
	}{
		"hosted clusters": {func(p *hivev1.ClusterPool) { p.Spec.Platform = hivev1.Platform{Hosted: &hivev1.HostedPlatform{}} }, "restricted"},
		"clusters of another installer": {func(p *hivev1.ClusterPool) {
			p.Spec.Platform = hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, interceptor.Funcs{}, testobj.Pool("p", testobj.Size(1), c.pool), testobj.ClusterImageSet(testobj.ImageSetName))
			require.NoError(t, s.passes("p", 4))
			clusters := s.clusters()
			require.Len(t, clusters, 1)
			ns := &corev1.Namespace{}
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: clusters[0].Namespace}, ns))
			require.Equal(t, c.want, ns.Labels["pod-security.kubernetes.io/enforce"])
		})
	}
}

func TestInstallObjectsAreMadeFromTheTemplate(t *testing.T) {
	s := newShell(t, interceptor.Funcs{}, testobj.ClusterImageSet(testobj.ImageSetName), testobj.Pool("p", func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{None: &runtime.RawExtension{Raw: []byte(`{}`)}}
		p.Spec.ClusterInstallTemplate = &hivev1.ClusterInstallTemplate{
			APIVersion: "extensions.example.com/v1", Kind: "Install", Labels: map[string]string{"a": "b"},
			Spec: &runtime.RawExtension{Raw: []byte(`{"replicas":3,"clusterDeploymentRef":{"name":"replaced"}}`)},
		}
	}))
	require.NoError(t, s.passes("p", 3))
	cd := s.clusters()[0]
	require.Equal(t, hivev1.ClusterInstallLocalReference{Group: "extensions.example.com", Version: "v1", Kind: "Install", Name: cd.Name}, *cd.Spec.ClusterInstallRef)
	require.Nil(t, cd.Spec.Provisioning, "Hive's admission refuses both")
	install := &unstructured.Unstructured{}
	install.SetGroupVersionKind(schema.GroupVersionKind{Group: "extensions.example.com", Version: "v1", Kind: "Install"})
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(&cd), install))
	require.Equal(t, map[string]string{"a": "b"}, install.GetLabels())
	require.Equal(t, map[string]any{
		"replicas": int64(3), "clusterDeploymentRef": map[string]any{"name": cd.Name}, "imageSetRef": map[string]any{"name": testobj.ImageSetName},
	}, install.Object["spec"])
}

// The operator may create StatefulSets, and its pool's author may not: one in the namespace of a cluster would run what pod it likes.
func TestATemplateOfAKindOfKubernetesMakesNothing(t *testing.T) {
	s := newShell(t, interceptor.Funcs{}, testobj.ClusterImageSet(testobj.ImageSetName), testobj.Pool("p", func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{None: &runtime.RawExtension{Raw: []byte(`{}`)}}
		p.Spec.ClusterInstallTemplate = &hivev1.ClusterInstallTemplate{APIVersion: "apps/v1", Kind: "StatefulSet", Spec: &runtime.RawExtension{Raw: []byte(`{"serviceName":"x"}`)}}
	}))
	require.NoError(t, s.passes("p", 5))
	sets := &unstructured.UnstructuredList{}
	sets.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSetList"})
	require.NoError(t, s.client.List(t.Context(), sets))
	require.Empty(t, sets.Items)
	require.Empty(t, s.clusters())
	require.Contains(t, s.pool("p").Status.Provisioning.LastFailureMessage, "installs no cluster")
}

func TestInstallObjectsComeBesideTheConfigThatAPoolHas(t *testing.T) {
	s := newShell(t, interceptor.Funcs{}, testobj.ClusterImageSet(testobj.ImageSetName), testobj.Pool("p", testobj.InstallConfigTemplate("template"), func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{None: &runtime.RawExtension{Raw: []byte(`{}`)}}
		p.Spec.ClusterInstallTemplate = &hivev1.ClusterInstallTemplate{APIVersion: "extensions.example.com/v1", Kind: "Install"}
	}), testobj.Secret(testobj.Namespace, "template", hivev1.SecretKeyInstallConfig, "a: b"))
	require.NoError(t, s.passes("p", 3))
	cd := s.clusters()[0]
	require.NotNil(t, cd.Spec.ClusterInstallRef)
	require.Equal(t, &hivev1.Provisioning{
		ImageSetRef: &hivev1.ClusterImageSetReference{Name: testobj.ImageSetName}, InstallConfigSecretRef: &hivev1.LocalObjectReference{Name: cd.Name + "-install-config"},
	}, cd.Spec.Provisioning)
}

// A cluster that carries the labels of a pool's clusters and does not belong to it, as one of Hive whose namespace was not labelled, is none that the pool has to delete first.
func TestAPoolGoesBesideClustersThatAreNotItsOwn(t *testing.T) {
	foreign := &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "p-ccccc", Name: "p-ccccc", UID: "foreign", Labels: map[string]string{
			hivev1.LabelClusterPoolNamespace: testobj.Namespace, hivev1.LabelClusterPoolName: "p",
		}},
		Spec: hivev1.ClusterDeploymentSpec{ClusterPoolRef: &hivev1.ClusterPoolReference{Namespace: testobj.Namespace, PoolName: "p"}},
	}
	s := newShell(t, interceptor.Funcs{}, testobj.Pool("p", testobj.Size(0), testobj.Held()), testobj.ClusterImageSet(testobj.ImageSetName), foreign,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: foreign.Namespace, Labels: map[string]string{hivev1.LabelNamespaceClusterPoolName: "p"}}})
	require.NoError(t, s.client.Delete(t.Context(), s.pool("p")))
	require.NoError(t, s.passes("p", 4))
	require.True(t, apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKey{Namespace: testobj.Namespace, Name: "p"}, &hivev1.ClusterPool{})), "the pool waits for a cluster that is not its own")
	require.Len(t, s.clusters(), 1, "a pool does not delete what it does not own")
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	s := newShell(t, interceptor.Funcs{}, testobj.ClusterImageSet(testobj.ImageSetName), testobj.Pool("p", testobj.InstallConfigTemplate("template")),
		testobj.Secret(testobj.Namespace, "template", hivev1.SecretKeyInstallConfig, "sesame: [unclosed"))
	err := s.passes("p", 3)
	require.NoError(t, err)
	for _, c := range s.pool("p").Status.Conditions {
		require.NotContains(t, c.Message, "sesame")
	}
	missing := hivev1.FindCondition(s.pool("p").Status.Conditions, hivev1.ClusterPoolMissingDependencies)
	require.True(t, strings.HasSuffix(missing.Message, "is no YAML object"), missing.Message)
	require.Empty(t, s.clusters())
}

func TestLeftoversOfADeletedPoolAreRemoved(t *testing.T) {
	left := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			hivev1.LabelNamespaceClusterPoolName: "p", hivev1.LabelNamespaceClusterPoolNamespace: testobj.Namespace,
		}}}
	}
	s := newShell(t, interceptor.Funcs{}, left("p-bbbbb"), left("p-ccccc"), left("somewhere-else"),
		&hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "p-ccccc", Name: "c"}})
	require.NoError(t, s.passes("p", 1))
	list := &corev1.NamespaceList{}
	require.NoError(t, s.client.List(t.Context(), list))
	var names []string
	for _, ns := range list.Items {
		names = append(names, ns.Name)
	}
	require.Equal(t, []string{"p-ccccc", "somewhere-else"}, names)
}

func TestAWriteThatWasLostIsRepeatedAtTheSameVersion(t *testing.T) {
	writes := 0
	s := newShell(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		if _, isCluster := o.(*hivev1.ClusterDeployment); isCluster {
			if writes++; writes == 1 {
				return nil // and etcd is restored from a backup
			}
		}
		return c.Patch(ctx, o, p, options...)
	}}, testobj.Pool("p", testobj.Size(1)), testobj.ClusterImageSet(testobj.ImageSetName))
	require.NoError(t, s.passes("p", 10))
	require.Len(t, s.clusters(), 1)
	cluster := s.clusters()[0]
	cluster.Spec.Installed, cluster.Spec.PowerState = true, hivev1.PowerStateHibernating
	cluster.Spec.ClusterMetadata = &hivev1.ClusterMetadata{ClusterID: "c", InfraID: "i", AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "k"}}
	require.NoError(t, s.client.Update(t.Context(), &cluster))
	pool := s.pool("p")
	pool.Spec.RunningCount = 1
	require.NoError(t, s.client.Update(t.Context(), pool))

	require.NoError(t, s.passes("p", 10))
	require.Equal(t, 1, writes, "a cache that is behind shows the same")
	require.NoError(t, s.passes("p", 40))
	require.Equal(t, hivev1.PowerStateRunning, s.clusters()[0].Spec.PowerState)
	require.Equal(t, 2, writes)
}

// A creation that is outstanding when its pool is deleted is carried out, for its cluster to be deleted. What the pool's Secrets lack by then is no obstacle.
func TestAPoolIsDeletedWhateverItsSecretsLack(t *testing.T) {
	for name, spoil := range map[string]func(*shell, *corev1.Secret) error{
		"gone": func(s *shell, secret *corev1.Secret) error { return s.client.Delete(s.t.Context(), secret) },
		"without its key": func(s *shell, secret *corev1.Secret) error {
			secret.Data = map[string][]byte{"config.json": []byte("{}")}
			return s.client.Update(s.t.Context(), secret)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cut := true
			secret := testobj.Secret(testobj.Namespace, "pull", corev1.DockerConfigJsonKey, `{"auths":{}}`)
			s := newShell(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if _, is := o.(*corev1.Namespace); is && cut {
					return errors.New("the wire is cut")
				}
				return c.Create(ctx, o, options...)
			}}, testobj.Pool("p", testobj.Size(1), testobj.PullSecret("pull")), testobj.ClusterImageSet(testobj.ImageSetName), secret)
			require.Error(t, s.passes("p", 8))
			pool := s.pool("p")
			require.Len(t, pool.Status.Operations, 1)
			cut = false
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
			require.NoError(t, spoil(s, secret))
			require.NoError(t, s.client.Delete(t.Context(), pool))
			require.NoError(t, s.passes("p", 60))
			require.True(t, apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool)))
			require.Empty(t, s.clusters())
		})
	}
}

// A cluster whose creation was interrupted, and whose pool has changed since, is of the earlier version: some of its objects are, and stay so. The pool replaces it.
func TestAnInterruptedCreationIsOfTheVersionThatItBeganWith(t *testing.T) {
	for name, cut := range map[string]func(client.Object) bool{
		"after the MachinePool":          func(o client.Object) bool { _, is := o.(*hivev1.ClusterDeployment); return is },
		"when there is nothing of it":    func(o client.Object) bool { _, is := o.(*hivev1.MachinePool); return is },
		"when there is no namespace yet": func(o client.Object) bool { _, is := o.(*corev1.Namespace); return is },
	} {
		t.Run(name, func(t *testing.T) {
			interrupted := true
			s := newShell(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if interrupted && cut(o) {
					return errors.New("the wire is cut")
				}
				return c.Create(ctx, o, options...)
			}}, testobj.Pool("p", testobj.Size(1), func(p *hivev1.ClusterPool) {
				p.Spec.MachinePools = []hivev1.ClusterPoolMachinePool{{Name: "worker", Replicas: 1}}
			}), testobj.ClusterImageSet(testobj.ImageSetName))
			require.Error(t, s.passes("p", 8))
			pool := s.pool("p")
			require.Len(t, pool.Status.Operations, 1)
			versions := map[int64]string{1: poolplan.Version(pool.Spec)}
			pool.Spec.MachinePools[0].Replicas = 3
			versions[3] = poolplan.Version(pool.Spec)
			require.NoError(t, s.client.Update(t.Context(), pool))
			interrupted = false
			require.NoError(t, s.passes("p", 2))
			clusters := s.clusters()
			require.Len(t, clusters, 1)
			machines := &hivev1.MachinePoolList{}
			require.NoError(t, s.client.List(t.Context(), machines))
			require.Len(t, machines.Items, 1)
			require.Equal(t, versions[*machines.Items[0].Spec.Replicas], clusters[0].Annotations[hivev1.AnnotationClusterPoolSpecHash])
		})
	}
}
