// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// whatWakes is what the plan of a claim reads and what wakes the claim when it changes. The tests below hold the entries about clusters and pools field by field.
var whatWakes = map[string]string{
	"Claim":      "the watch of ClusterClaims, unfiltered",
	"Pool":       "the watch of ClusterPools, filtered by poolview.PoolOf",
	"Own":        "the watch of ClusterDeployments, filtered by poolview.ClusterOf",
	"Verified":   "nothing: it says how the pass read",
	"UIDDropped": "nothing: the pass itself found it",
	"Lost":       "nothing: the pass itself lost the cluster",
	"Clusters":   "the watch of ClusterDeployments: the head of the queue when one becomes free, all claims from time to time",
	"Claims":     "the watch of ClusterClaims: the head of the queue when one leaves it, all claims from time to time",
	"Role":       "the watch of Roles",
	"Binding":    "the watch of RoleBindings",
}

func TestEverythingThatThePlanReadsHasSomethingThatWakesTheClaim(t *testing.T) {
	require.Equal(t, testobj.FieldsOf(claimplan.Snapshot{}, nil), slices.Sorted(maps.Keys(whatWakes)))
}

// woken returns the names of the claims that an event wakes.
func woken(f func(queue)) []string {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	f(q)
	var names []string
	for q.Len() > 0 {
		request, _ := q.Get()
		names = append(names, request.Name)
	}
	slices.Sort(names)
	return names
}

func TestAClaimIsWokenByEveryFieldOfItsCluster(t *testing.T) {
	claim := testobj.Claim("a", "p", testobj.ClaimIn("team"))
	claim.Spec.Namespace, claim.Finalizers = "x", []string{hivev1.FinalizerClusterClaim}
	before := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "x", UID: "uid-x"}}
	before.Spec.PowerState = hivev1.PowerStateHibernating
	before.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "team", PoolName: "p"}
	s := newShell(t, interceptor.Funcs{}, claim, before)
	changes := testobj.ClusterChanges(noon)
	require.Equal(t, testobj.FieldsOf(poolview.Cluster{}, testobj.FixedOfClusters()), slices.Sorted(maps.Keys(changes)))
	for field, change := range changes {
		t.Run(field, func(t *testing.T) {
			after := before.DeepCopy()
			change(after)
			require.Contains(t, woken(func(q queue) {
				s.onClusters().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
			}), "a")
		})
	}
	after := before.DeepCopy()
	after.ResourceVersion, after.Annotations = "8", map[string]string{"other-client": "was here"}
	require.Empty(t, woken(func(q queue) {
		s.onClusters().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	}))
}

func TestAWaitingClaimIsWokenByEveryFieldOfItsPool(t *testing.T) {
	claim, held := testobj.Claim("waits", "p", testobj.ClaimIn("team")), testobj.Claim("held", "p", testobj.ClaimIn("team"))
	held.Spec.Namespace, held.Finalizers = "y", []string{hivev1.FinalizerClusterClaim}
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "x", UID: "uid-x"}}
	cd.Spec.Installed, cd.Spec.ClusterPoolRef = true, &hivev1.ClusterPoolReference{Namespace: "team", PoolName: "p"}
	before := testobj.Pool("p", testobj.In("team"))
	s := newShell(t, interceptor.Funcs{}, namespaceOf("x"), claim, held, cd, before)
	toDelete := before.DeepCopy()
	toDelete.Status.Operations = []hivev1.ClusterPoolOperation{{Kind: hivev1.OperationDelete, Namespace: "x", UID: "uid-x"}}
	changes := testobj.PoolChanges(noon)
	require.Equal(t, testobj.FieldsOf(poolview.Pool{}, nil), slices.Sorted(maps.Keys(changes)))
	for field, change := range changes {
		t.Run(field, func(t *testing.T) {
			old := before
			if field == "DeletionKeys" {
				old = toDelete
			}
			after := old.DeepCopy()
			change(after)
			names := woken(func(q queue) { s.onPools().Update(t.Context(), event.UpdateEvent{ObjectOld: old, ObjectNew: after}, q) })
			require.Contains(t, names, "waits")
			if field == "ClaimLifetime" || field == "Bounded" {
				require.Contains(t, names, "held", "it reads that too")
			}
		})
	}
}

func TestTheHeadOfTheQueueIsWokenWhenAClusterThatWasStuckRuns(t *testing.T) {
	claim := testobj.Claim("waits", "p", testobj.ClaimIn("team"))
	before := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "x", UID: "uid-x"}}
	before.Spec.Installed, before.Spec.ClusterPoolRef = true, &hivev1.ClusterPoolReference{Namespace: "team", PoolName: "p"}
	before.Status.PowerState = hivev1.PowerStateWaitingForNodes
	hivev1.SetCondition(&before.Status.Conditions, hivev1.Condition{Type: hivev1.ClusterDeploymentHibernating, Status: "False", Reason: hivev1.ReasonResumingOrRunning},
		metav1.NewTime(noon.Add(-time.Hour)))
	after := before.DeepCopy()
	after.Status.PowerState = hivev1.PowerStateRunning
	s := newShell(t, interceptor.Funcs{}, namespaceOf("x"), claim, after, testobj.Pool("p", testobj.In("team"), testobj.ResumeTimeout(time.Minute)))
	require.Equal(t, []string{"waits"}, woken(func(q queue) {
		s.onClusters().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	}))
}

func TestTheHeadOfTheQueueIsWokenWhenAClaimBeforeItStopsWaiting(t *testing.T) {
	next := testobj.Claim("next", "p", testobj.ClaimIn("team"))
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "x", UID: "uid-x"}}
	cd.Spec.Installed, cd.Spec.ClusterPoolRef = true, &hivev1.ClusterPoolReference{Namespace: "team", PoolName: "p"}
	s := newShell(t, interceptor.Funcs{}, namespaceOf("x"), next, cd, testobj.Pool("p", testobj.In("team")))
	for field, change := range testobj.ClaimChanges(noon) {
		t.Run(field, func(t *testing.T) {
			before := testobj.Claim("first", "p", testobj.ClaimIn("team"))
			after := before.DeepCopy()
			change(after)
			if field == "Namespace" { // the claim is served when it is named a cluster; the next one is woken when it loses that
				before, after = after, before
			}
			require.Contains(t, woken(func(q queue) {
				s.onClaims().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
			}), "next")
		})
	}
}
