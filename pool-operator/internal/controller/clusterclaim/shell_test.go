// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
	"github.com/muster-io/muster/pool-operator/internal/membership"
)

var (
	noon    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	request = ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "a"}}
)

type fixedClock time.Time

func (c fixedClock) Now() time.Time { return time.Time(c) }

func (c fixedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// shell is a Reconciler on a client that can be made to fail.
type shell struct {
	*Reconciler
	recorder *events.FakeRecorder
}

// Reconcile ends a pass as the one of a manager does.
func (s *shell) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return outcome.Reconciler[ctrl.Request](s.Reconciler).Reconcile(ctx, request)
}

func newShell(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *shell {
	builder := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).WithStatusSubresource(&hivev1.ClusterClaim{}).WithInterceptorFuncs(funcs)
	for _, index := range indexes() {
		builder = builder.WithIndex(index.object, index.field, index.keys)
	}
	c, recorder := builder.Build(), events.NewFakeRecorder(10)
	return &shell{New(Deps{Client: c, Live: c, Recorder: recorder, Clock: fixedClock(noon), Metrics: NewMetrics()}), recorder}
}

func (s *shell) claim(t *testing.T) *hivev1.ClusterClaim {
	claim := &hivev1.ClusterClaim{}
	require.NoError(t, s.Client.Get(t.Context(), request.NamespacedName, claim))
	return claim
}

func (s *shell) pending(t *testing.T) *hivev1.Condition {
	return hivev1.FindCondition(s.claim(t).Status.Conditions, hivev1.ClusterClaimPending)
}

// namespaceOf is the namespace of a cluster of the pool.
func namespaceOf(cluster string) *corev1.Namespace {
	labels := membership.Labels(types.NamespacedName{Namespace: "team", Name: "p"})
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster, Labels: labels}}
}

// scene is a pool with one free cluster, and a claim with a subject.
func scene() []client.Object {
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "uid-a", CreationTimestamp: metav1.NewTime(noon.Add(-time.Second))}}
	claim.Spec.ClusterPoolName, claim.Spec.Subjects = "p", []rbacv1.Subject{{Kind: "User", Name: "ada"}}
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "x", UID: "uid-x"}}
	cd.Spec.Installed, cd.Spec.ClusterPoolRef = true, &hivev1.ClusterPoolReference{Namespace: "team", PoolName: "p"}
	cd.Spec.ClusterMetadata = &hivev1.ClusterMetadata{AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "kubeconfig"}}
	return []client.Object{claim, cd, &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"}}, namespaceOf("x")}
}

func TestAPassBindsAndASecondOneDoesNothing(t *testing.T) {
	writes := 0
	count := func() { writes++ }
	s := newShell(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			count()
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			count()
			return c.Patch(ctx, obj, patch, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			count()
			return c.Apply(ctx, obj, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			count()
			return c.SubResource(sub).Apply(ctx, obj, opts...)
		},
	}, scene()...)
	_, err := s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, 5, writes, "claim, cluster, Role, RoleBinding, status")
	require.Equal(t, hivev1.ReasonClusterClaimed, s.pending(t).Reason)
	require.Equal(t, 1, testutil.CollectAndCount(s.Metrics, "pool_operator_claim_wait_seconds"))
	require.Contains(t, <-s.recorder.Events, "ClusterClaimed")
	result, err := s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.Zero(t, result)
	require.Equal(t, 5, writes, "a pass without news writes nothing")
}

func TestRefusedRightsAreReportedAndTriedAgain(t *testing.T) {
	refused := apierrors.NewForbidden(rbacv1.Resource("roles"), hivev1.ClaimOwnerRoleName, errors.New("attempting to grant extra privileges"))
	fail := true
	s := newShell(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if fail {
				return refused
			}
			return c.Create(ctx, obj, opts...)
		},
	}, scene()...)
	_, err := s.Reconcile(t.Context(), request)
	require.True(t, apierrors.IsForbidden(err))
	require.ErrorContains(t, err, "writing role x/hive-claim-owner")
	require.Equal(t, hivev1.ReasonClusterAssigned, s.pending(t).Reason)
	require.Contains(t, s.pending(t).Message, "the rights of its subjects are being set up")
	fail = false
	_, err = s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, hivev1.ReasonClusterClaimed, s.pending(t).Reason)
}

func TestAConflictIsNoError(t *testing.T) {
	s := newShell(t, interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return apierrors.NewConflict(hivev1.Resource("clusterclaims"), obj.GetName(), errors.New("modified"))
		},
	}, scene()...)
	result, err := s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.Positive(t, result.RequeueAfter)
	require.Less(t, result.RequeueAfter, time.Second)
	require.Nil(t, s.pending(t), "a pass that lost a race leaves the status to the next pass")
}

func TestALostClusterLeadsToAnotherInTheSamePass(t *testing.T) {
	other := scene()[1].(*hivev1.ClusterDeployment)
	other.Namespace, other.Name, other.UID = "y", "y", "uid-y"
	raced := false
	s := newShell(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if cd, ok := obj.(*hivev1.ClusterDeployment); ok && !raced {
				raced = true
				rival := &hivev1.ClusterDeployment{}
				require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(cd), rival))
				rival.Spec.ClusterPoolRef.ClaimName, rival.Spec.ClusterPoolRef.ClaimUID = "rival", "uid-rival"
				require.NoError(t, c.Update(ctx, rival))
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	}, append(scene(), other, namespaceOf("y"))...)
	_, err := s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, "y", s.claim(t).Spec.Namespace)
	require.InDelta(t, 1, testutil.ToFloat64(s.Metrics.conflicts), 0)
}

func TestAFailingDeletionKeepsTheFinalizer(t *testing.T) {
	s := newShell(t, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return apierrors.NewInternalError(errors.New("no"))
		},
	}, released()...)
	_, err := s.Reconcile(t.Context(), request)
	require.ErrorContains(t, err, "deleting cluster x")
	require.NotEmpty(t, s.claim(t).Finalizers)
}

// TestAClaimGoesAlsoWhereItsKindWasNotServed has an API server that does not serve clusters, and then claims, when they are written: no event would start another pass.
func TestAClaimGoesAlsoWhereItsKindWasNotServed(t *testing.T) {
	unserved := true
	answer := func() error {
		if unserved {
			return faultinject.NotServed(schema.GroupResource{Group: hivev1.GroupVersion.Group})
		}
		return nil
	}
	for name, objects := range map[string][]client.Object{"its cluster is deleted": released(), "its finalizer is removed": released()[:1]} {
		t.Run(name, func(t *testing.T) {
			unserved = true
			s := newShell(t, interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
					if err := answer(); err != nil {
						return err
					}
					return c.Delete(ctx, obj, opts...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					if err := answer(); err != nil {
						return err
					}
					return c.Patch(ctx, obj, patch, opts...)
				},
			}, objects...)
			_, err := s.Reconcile(t.Context(), request)
			require.Error(t, err)
			unserved = false
			for range 3 {
				_, err = s.Reconcile(t.Context(), request)
				require.NoError(t, err)
			}
			assert.True(t, apierrors.IsNotFound(s.Client.Get(t.Context(), request.NamespacedName, &hivev1.ClusterClaim{})))
		})
	}
}

// released is the scene of a claim that has the cluster and is being deleted.
func released() []client.Object {
	objects := scene()
	claim, cd := objects[0].(*hivev1.ClusterClaim), objects[1].(*hivev1.ClusterDeployment)
	claim.Spec.Namespace, claim.Finalizers, claim.DeletionTimestamp = "x", []string{hivev1.FinalizerClusterClaim}, new(metav1.NewTime(noon))
	cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimUID = "a", "uid-a"
	return objects
}

func TestAClusterThatIsProtectedMeanwhileIsNotDeleted(t *testing.T) {
	s := newShell(t, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			protection := mergePatchOf(`{"metadata":{"annotations":{"hive.openshift.io/protected-delete":"true"}}}`)
			require.NoError(t, c.Patch(ctx, obj.DeepCopyObject().(client.Object), protection))
			return c.Delete(ctx, obj, opts...)
		},
	}, released()...)
	for range 2 {
		_, err := s.Reconcile(t.Context(), request)
		require.NoError(t, err)
		require.NoError(t, s.Client.Get(t.Context(), types.NamespacedName{Namespace: "x", Name: "x"}, &hivev1.ClusterDeployment{}))
	}
	require.Equal(t, hivev1.ReasonClusterDeleting, hivev1.FindCondition(s.claim(t).Status.Conditions, hivev1.ClusterClaimRunning).Reason)
}

// An abandoned cluster is one in which the claim was recorded after it was gone: no user had it, so it is deleted without the grace of other orphans.
func TestALostRaceForAnAbandonedClusterIsWonLater(t *testing.T) {
	raced := false
	objects := released()[1:]
	s := newShell(t, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if !raced {
				raced = true
				require.NoError(t, c.Patch(ctx, obj.DeepCopyObject().(client.Object), mergePatchOf(`{"metadata":{"labels":{"of":"another-writer"}}}`)))
			}
			return c.Delete(ctx, obj, opts...)
		},
	}, objects...)
	s.memory.abandons("uid-x")
	cd := &hivev1.ClusterDeployment{}
	_, err := s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.NoError(t, s.Client.Get(t.Context(), types.NamespacedName{Namespace: "x", Name: "x"}, cd))
	_, err = s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.True(t, apierrors.IsNotFound(s.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd)))
}

func TestTheFinalizerOfAClaimIsRemovedOnce(t *testing.T) {
	writes := 0
	s := newShell(t, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			writes++ // and the cache does not show it
			return nil
		},
	}, released()[0])
	for _, want := range []time.Duration{0, catchUp} {
		result, err := s.Reconcile(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, want, result.RequeueAfter)
		require.Equal(t, 1, writes)
	}
}

func TestAViewOlderThanTheLastWriteIsLeftAlone(t *testing.T) {
	s := newShell(t, interceptor.Funcs{}, scene()...)
	s.memory.written.Wrote("uid-a", "1000000")
	result, err := s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, catchUp, result.RequeueAfter)
	require.Empty(t, s.claim(t).Spec.Namespace)
}

func TestRightsThatACacheDoesNotHaveYetAreNotWrittenAgain(t *testing.T) {
	s := newShell(t, interceptor.Funcs{}, scene()...)
	_, err := s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: hivev1.ClaimOwnerRoleName}}
	require.NoError(t, s.Client.Delete(t.Context(), role))
	result, err := s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, catchUp, result.RequeueAfter)
	require.True(t, apierrors.IsNotFound(s.Client.Get(t.Context(), client.ObjectKeyFromObject(role), &rbacv1.Role{})))
	s.Clock = fixedClock(noon.Add(unseenGrant))
	_, err = s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(role), &rbacv1.Role{}), "rights that stay away were deleted")
}

func TestQueuesAreMeasured(t *testing.T) {
	waiting := func(name string, why hivev1.WaitReason, age time.Duration) client.Object {
		claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))}}
		claim.Spec.ClusterPoolName, claim.Status.WaitingFor = "p", why
		return claim
	}
	s := newShell(t, interceptor.Funcs{}, waiting("b", hivev1.WaitProvisioning, time.Minute), waiting("c", hivev1.WaitProvisioning, time.Hour), waiting("d", hivev1.WaitQueueTimedOut, 2*time.Hour))
	require.NoError(t, testutil.CollectAndCompare(NewQueues(s.Client, s.Clock), strings.NewReader(`
# HELP pool_operator_claim_oldest_waiting_age_seconds Age in seconds of the ClusterClaim of a pool that has waited longest and is still in the queue.
# TYPE pool_operator_claim_oldest_waiting_age_seconds gauge
pool_operator_claim_oldest_waiting_age_seconds{clusterpool_name="p",clusterpool_namespace="team"} 3600
# HELP pool_operator_claims_waiting ClusterClaims that wait for a cluster, by what they wait for; those of pools that do not exist are among them.
# TYPE pool_operator_claims_waiting gauge
pool_operator_claims_waiting{clusterpool_name="p",clusterpool_namespace="team",waiting_for="Provisioning"} 2
pool_operator_claims_waiting{clusterpool_name="p",clusterpool_namespace="team",waiting_for="QueueTimedOut"} 1
`)))
}

// answering is an API server that answers each Get with an error.
type answering struct {
	client.Reader
	err error
}

func (a answering) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return a.err
}

// TestAClaimIsGoneOnlyWhereItsKindIsServed: the answer to a request for a kind that is not served is 404, too.
func TestAClaimIsGoneOnlyWhereItsKindIsServed(t *testing.T) {
	claims := schema.GroupResource{Group: hivev1.GroupVersion.Group, Resource: "clusterclaims"}
	exists := func(err error) error {
		r := &Reconciler{Deps: Deps{Live: answering{err: err}}}
		found, err := r.claimExists(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c"}, &hivev1.ClusterDeployment{})
		assert.False(t, found)
		return err
	}
	require.NoError(t, exists(apierrors.NewNotFound(claims, "c")))
	require.Error(t, exists(faultinject.NotServed(claims)))
}

// TestAClusterIsGoneOnlyWhereItsKindIsServed: a claim does not lose its cluster, and does not report that it was deleted, while clusters are not served.
func TestAClusterIsGoneOnlyWhereItsKindIsServed(t *testing.T) {
	clusters := schema.GroupResource{Group: hivev1.GroupVersion.Group, Resource: "clusterdeployments"}
	verify := func(err error) (bool, error) {
		r, p := &Reconciler{Deps: Deps{Live: answering{err: err}}}, &pass{}
		err = r.verifyCluster(t.Context(), p, claimplan.VerifyCluster{Cluster: "x"})
		return p.Verified, err
	}
	verified, err := verify(apierrors.NewNotFound(clusters, "x"))
	require.NoError(t, err)
	assert.True(t, verified)
	verified, err = verify(faultinject.NotServed(clusters))
	require.Error(t, err)
	assert.False(t, verified)
}
