// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/membership"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// wake is what wakes a pool when a field of the snapshot changes: one of the objects, each of which changes that field alone; or, without objects, what the sentence says.
type wake struct {
	by      string
	objects func(pool *hivev1.ClusterPool) []client.Object
}

// whatWakes is what the plan of a pool reads and what wakes the pool when it changes. The tests below hold the entries about clusters and claims field by field.
var whatWakes = map[string]wake{
	"Pool": {by: "the watch of ClusterPools, unfiltered"},
	"Clusters": {by: "the watch of ClusterDeployments, filtered by poolview.ClusterOf", objects: func(pool *hivev1.ClusterPool) []client.Object {
		cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "p-bbbbb", Name: "p-bbbbb"}}
		cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: pool.Namespace, PoolName: pool.Name}
		return []client.Object{cd}
	}},
	"Claims": {by: "the watch of ClusterClaims, filtered by poolview.ClaimOf", objects: func(pool *hivev1.ClusterPool) []client.Object {
		return []client.Object{testobj.Claim("c", pool.Name)}
	}},
	"Namespaces": {by: "the watch of Namespaces, unfiltered", objects: func(pool *hivev1.ClusterPool) []client.Object {
		ns := metadataObject(corev1.SchemeGroupVersion.WithKind("Namespace"))
		ns.Name, ns.Labels = "p-bbbbb", membership.Labels(client.ObjectKeyFromObject(pool))
		return []client.Object{ns}
	}},
	"Missing":      {by: "the watches of ClusterImageSets and Secrets, unfiltered", objects: ingredients},
	"Changed":      {by: "the watches of ClusterImageSets and Secrets, unfiltered", objects: ingredients},
	"Sources":      {by: "the watches of ClusterImageSets and Secrets, unfiltered", objects: ingredients},
	"RecentClaims": {by: "nothing: it is reported when there is something else to write"},
	"View":         {by: "RequeueAfter of a decision to wait"},
	"Live":         {by: "nothing: it says how the pass read"},
	"Slugs":        {by: "nothing: they are random"},
	"Refused":      {by: "the pass that was refused asks for the next one"},
	"Absent":       {by: "the pass that looked asks for the next one"},
}

// ingredients are what new clusters are made of: the image set, and every Secret that the pool needs.
func ingredients(pool *hivev1.ClusterPool) []client.Object {
	objects := []client.Object{testobj.ClusterImageSet(pool.Spec.ImageSetRef.Name)}
	for _, need := range secretsNeeded(pool) {
		secret := metadataObject(corev1.SchemeGroupVersion.WithKind("Secret"))
		secret.Namespace, secret.Name = pool.Namespace, need.name
		objects = append(objects, secret)
	}
	return objects
}

func TestEverythingThatThePlanReadsHasSomethingThatWakesThePool(t *testing.T) {
	require.Equal(t, testobj.FieldsOf(poolplan.Snapshot{}, nil), slices.Sorted(maps.Keys(whatWakes)))
	pool := testobj.Pool("p", testobj.PullSecret("pull"), testobj.InstallConfigTemplate("template"), func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{AWS: &runtime.RawExtension{Raw: []byte(`{"credentialsSecretRef":{"name":"cloud"}}`)}}
	})
	require.Len(t, secretsNeeded(pool), 3, "the pool needs each Secret that a pool can need")
	other := testobj.Pool("other", testobj.ImageSet("other"))
	scheme := runtime.NewScheme()
	require.NoError(t, hivev1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool, other)
	FakeIndexes(func(o client.Object, field string, values client.IndexerFunc) { builder.WithIndex(o, field, values) })
	r := New(Deps{Client: builder.Build()})
	for field, wakes := range whatWakes {
		require.NotEmpty(t, wakes.by, field)
		if wakes.objects == nil {
			continue
		}
		t.Run(field, func(t *testing.T) {
			for _, before := range wakes.objects(pool) {
				after := before.DeepCopyObject().(client.Object)
				after.SetResourceVersion("8")
				after.SetDeletionTimestamp(new(metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))))
				want := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(pool)}}
				name := fmt.Sprintf("%T %s", before, before.GetName())
				require.Equal(t, want, woken(t, r, after, func(p predicate.Predicate) bool {
					return p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
				}), "%s changes", name)
				require.Equal(t, want, woken(t, r, after, func(p predicate.Predicate) bool { return p.Create(event.CreateEvent{Object: after}) }), "%s is there", name)
				require.Equal(t, want, woken(t, r, after, func(p predicate.Predicate) bool { return p.Delete(event.DeleteEvent{Object: after}) }), "%s is gone", name)
			}
		})
	}
}

// woken are the pools that an event of an object wakes, if it passes the filters of a watch.
func woken(t *testing.T, r *Reconciler, object client.Object, passes func(predicate.Predicate) bool) []reconcile.Request {
	t.Helper()
	var out []reconcile.Request
	for _, w := range r.watches() {
		if reflect.TypeOf(w.object) != reflect.TypeOf(object) || w.object.GetObjectKind().GroupVersionKind() != object.GetObjectKind().GroupVersionKind() {
			continue
		}
		if !slices.ContainsFunc(w.filter, func(p predicate.Predicate) bool { return !passes(p) }) {
			out = append(out, w.pools(t.Context(), object)...)
		}
	}
	return out
}

func TestAPoolIsWokenByEveryFieldOfItsClusters(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	before := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "p-bbbbb", Name: "p-bbbbb", UID: "uid"}}
	before.Spec.PowerState = hivev1.PowerStateHibernating
	before.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "pools", PoolName: "p"}
	changes := testobj.ClusterChanges(at)
	require.Equal(t, testobj.FieldsOf(poolview.Cluster{}, testobj.FixedOfClusters()), slices.Sorted(maps.Keys(changes)))
	for field, change := range changes {
		t.Run(field, func(t *testing.T) {
			after := before.DeepCopy()
			change(after)
			differs(t, field, poolview.ClusterOf(before), poolview.ClusterOf(after))
			require.True(t, changed(clusterOfObject).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
			require.Len(t, poolOfCluster(after), 1)
		})
	}
	after := before.DeepCopy()
	after.ResourceVersion, after.Annotations = "8", map[string]string{"other-client": "was here"}
	require.False(t, changed(clusterOfObject).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}), "a change that no decision depends on causes no pass")
}

func TestAPoolIsWokenByEveryFieldOfItsClaims(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	before := testobj.Claim("c", "p")
	changes := testobj.ClaimChanges(at)
	require.Equal(t, testobj.FieldsOf(poolview.Claim{}, testobj.FixedOfClaims()), slices.Sorted(maps.Keys(changes)))
	for field, change := range changes {
		t.Run(field, func(t *testing.T) {
			after := before.DeepCopy()
			change(after)
			differs(t, field, poolview.ClaimOf(before), poolview.ClaimOf(after))
			require.True(t, changed(claimOfObject).Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
			require.Len(t, poolOfClaim(client.Object(after)), 1)
		})
	}
}

func differs(t *testing.T, field string, before, after any) {
	t.Helper()
	require.NotEqual(t, reflect.ValueOf(before).FieldByName(field).Interface(), reflect.ValueOf(after).FieldByName(field).Interface(), "the change is one of the field")
}
