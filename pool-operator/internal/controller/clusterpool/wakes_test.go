// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// whatWakes is what the plan of a pool reads and what wakes the pool when it changes. The tests below hold the entries about clusters and claims field by field.
var whatWakes = map[string]string{
	"Pool":         "the watch of ClusterPools, unfiltered",
	"Clusters":     "the watch of ClusterDeployments, filtered by poolview.ClusterOf",
	"Claims":       "the watch of ClusterClaims, filtered by poolview.ClaimOf",
	"Namespaces":   "the watch of Namespaces, unfiltered",
	"RecentClaims": "nothing: it is reported when there is something else to write",
	"Missing":      "the watches of ClusterImageSets and Secrets, unfiltered",
	"Changed":      "the watches of ClusterImageSets and Secrets, unfiltered",
	"View":         "RequeueAfter of a decision to wait",
	"Live":         "nothing: it says how the pass read",
	"Slugs":        "nothing: they are random",
	"Refused":      "the pass that was refused asks for the next one",
	"Absent":       "the pass that looked asks for the next one",
}

func TestEverythingThatThePlanReadsHasSomethingThatWakesThePool(t *testing.T) {
	require.Equal(t, fieldsOf(poolplan.Snapshot{}, nil), slices.Sorted(maps.Keys(whatWakes)))
}

func TestAPoolIsWokenByEveryFieldOfItsClusters(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	before := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "p-bbbbb", Name: "p-bbbbb", UID: "uid"}}
	before.Spec.PowerState = hivev1.PowerStateHibernating
	before.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "pools", PoolName: "p"}
	changes := testobj.ClusterChanges(at)
	require.Equal(t, fieldsOf(poolview.Cluster{}, testobj.FixedOfClusters()), slices.Sorted(maps.Keys(changes)))
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
	require.Equal(t, fieldsOf(poolview.Claim{}, testobj.FixedOfClaims()), slices.Sorted(maps.Keys(changes)))
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

// fieldsOf are the names of the fields of a struct, without those that are left out.
func fieldsOf(value any, without []string) []string {
	var out []string
	for field := range reflect.TypeOf(value).Fields() {
		if !slices.Contains(without, field.Name) {
			out = append(out, field.Name)
		}
	}
	slices.Sort(out)
	return out
}
