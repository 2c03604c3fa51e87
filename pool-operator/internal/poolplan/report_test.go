// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// sameButCounts says whether a status with the change is the same as one without it, counts left out: then its write waits for more to come.
func sameButCounts(change func(*hivev1.ClusterPoolStatus)) bool {
	var changed hivev1.ClusterPoolStatus
	change(&changed)
	return equality.Semantic.DeepEqual(withoutCounts(changed), withoutCounts(hivev1.ClusterPoolStatus{}))
}

// setAny gives a field a value that is not empty.
func setAny(t *testing.T, field reflect.Value) {
	t.Helper()
	switch field.Kind() {
	case reflect.Int32, reflect.Int64:
		field.SetInt(1)
	case reflect.String:
		field.SetString("x")
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
	case reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
	case reflect.Map:
		field.Set(reflect.MakeMap(field.Type()))
		field.SetMapIndex(reflect.Zero(field.Type().Key()), reflect.Zero(field.Type().Elem()))
	default:
		require.Fail(t, "setAny has no value", "of a %s", field.Type())
	}
}

func TestEveryFieldOfTheStatusIsACountOrReportedSoon(t *testing.T) {
	count := map[string]bool{
		"Size": true, "Standby": true, "Ready": true, "Installing": true, "Broken": true, "Claimed": true, "Deleting": true, "PendingClaims": true,
		// Finished operations, names that became free and what goes with them.
		"Operations": true, "ClusterNameUsage": true, "Observed": true, "RunningCountRecommendation": true,
		"ObservedGeneration": false, "Selector": false, "Conditions": false, "Provisioning": false,
	}
	status := reflect.TypeFor[hivev1.ClusterPoolStatus]()
	for i := range status.NumField() {
		name := status.Field(i).Name
		want, listed := count[name]
		if !assert.True(t, listed, "%s: does it move with every cluster? Say so here, and name it in withoutCounts if it does not", name) {
			continue
		}
		got := sameButCounts(func(s *hivev1.ClusterPoolStatus) { setAny(t, reflect.ValueOf(s).Elem().Field(i)) })
		assert.Equal(t, want, got, "whether %s is a count", name)
	}
	assert.Len(t, count, status.NumField())
}

func TestEveryConditionIsACountOrReportedSoon(t *testing.T) {
	count := map[string]bool{
		hivev1.ClusterPoolReady:               true, // its sentence says how many clusters are installed
		hivev1.ClusterPoolMissingDependencies: false, hivev1.ClusterPoolCapacityAvailable: false, hivev1.ClusterPoolAllClustersCurrent: false,
		hivev1.ClusterPoolInventoryValid: false, hivev1.ClusterPoolDeletionPossible: false, hivev1.ClusterPoolProvisioningHealthy: false,
	}
	d := Plan(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Snapshot{Pool: &hivev1.ClusterPool{}})
	for _, c := range d.Status.Conditions {
		want, listed := count[c.Type]
		if !assert.True(t, listed, "%s: does its sentence move with every cluster? Say so here, and leave it out in withoutCounts if it does", c.Type) {
			continue
		}
		assert.Equal(t, want, sameButCounts(func(s *hivev1.ClusterPoolStatus) { s.Conditions = []hivev1.Condition{c} }), "whether %s is a count", c.Type)
	}
	assert.Len(t, d.Status.Conditions, len(count))
}
