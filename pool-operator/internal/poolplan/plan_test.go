// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// snapshot is a pool after its first pass, and clusters.
func snapshot(pool *hivev1.ClusterPool, list ...poolplan.Cluster) poolplan.Snapshot {
	testobj.Held()(pool)
	s := poolplan.Snapshot{Pool: pool, Clusters: list, Slugs: []string{"bbbbb", "ccccc", "ddddd", "fffff", "ggggg"}}
	s.View = hivev1.ClusterPoolObservation{ClusterDeployments: "100", ClusterClaims: "100"}
	for i := range s.Clusters {
		if s.Clusters[i].Version == "" {
			s.Clusters[i].Version = poolplan.Version(pool.Spec)
		}
	}
	return s
}

// free is an unclaimed cluster that is installed; it is older the higher its age.
func free(name string, age int) poolplan.Cluster {
	return poolplan.Cluster{
		Namespace: name, Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "7", ClusterName: name, Created: now.Add(-time.Duration(age) * time.Minute),
		Installed: true, Power: hivev1.PowerStateHibernating, ObservedPower: hivev1.PowerStateHibernating,
	}
}

func with(c poolplan.Cluster, change func(*poolplan.Cluster)) poolplan.Cluster {
	change(&c)
	return c
}

// kinds are the actions in short.
func kinds(actions []poolplan.Action) []string {
	out := []string{}
	for _, a := range actions {
		switch a := a.(type) {
		case poolplan.HoldPool:
			out = append(out, "hold")
		case poolplan.ReleasePool:
			out = append(out, "release")
		case poolplan.CreateCluster:
			out = append(out, "create "+a.Namespace)
		case poolplan.DeleteCluster:
			out = append(out, "delete "+a.Namespace)
		case poolplan.WithdrawCluster:
			out = append(out, "withdraw "+a.Namespace)
		case poolplan.SetPower:
			out = append(out, "power "+a.Namespace+" "+string(a.Power))
		case poolplan.DeleteNamespace:
			out = append(out, "reap "+a.Name)
		}
	}
	return out
}

func TestPlan(t *testing.T) {
	running := func(c *poolplan.Cluster) {
		c.Power, c.ObservedPower = hivev1.PowerStateRunning, hivev1.PowerStateRunning
	}
	claimedBy := func(name string) func(*poolplan.Cluster) {
		return func(c *poolplan.Cluster) { c.ClaimName, c.ClaimUID = name, types.UID("uid-of-"+name) }
	}
	marked := func(c *poolplan.Cluster) { c.Marked = true }
	protected := func(c *poolplan.Cluster) { c.Protected = true }
	stale := func(c *poolplan.Cluster) { c.Version = "old" }
	dataMissing := func(c *poolplan.Cluster) { c.DataMissing = true }
	missingFor := func(d time.Duration) func(*poolplan.Cluster) {
		return func(c *poolplan.Cluster) { c.DataMissing, c.DataMissingSince = true, now.Add(-d) }
	}
	deletingFor := func(d time.Duration) func(*poolplan.Cluster) {
		return func(c *poolplan.Cluster) { c.Deleting, c.DeletingSince = true, now.Add(-d) }
	}
	uninstalled := func(c *poolplan.Cluster) { c.Installed = false }
	hanging := func(c *poolplan.Cluster) { c.Installed, c.Version = false, "old" }
	withoutTimeout := func(p *hivev1.ClusterPool) { p.Spec.InstallTimeout = &metav1.Duration{} }
	for name, c := range map[string]struct {
		snapshot poolplan.Snapshot
		actions  []string
	}{
		"a full pool does nothing": {
			snapshot(testobj.Pool("p", testobj.Size(2)), free("p-a", 2), free("p-b", 1)), []string{},
		},
		"a paused pool does nothing": {
			snapshot(testobj.Pool("p", func(p *hivev1.ClusterPool) {
				p.Annotations = map[string]string{hivev1.AnnotationReconcilePause: "true"}
			})), []string{},
		},
		"claims that wait come on top of size, and their clusters run": {
			func() poolplan.Snapshot {
				s := snapshot(testobj.Pool("p", testobj.Size(1)), free("p-a", 2))
				s.Claims = []poolplan.Claim{{Name: "a", UID: "uid-of-a", Created: now}}
				return s
			}(), []string{"create p-bbbbb", "power p-a Running"},
		},
		"a claim that left the queue is not counted": {
			func() poolplan.Snapshot {
				s := snapshot(testobj.Pool("p", testobj.Size(0)))
				s.Claims = []poolplan.Claim{{Name: "a", UID: "uid-of-a", Created: now, Expires: now}}
				return s
			}(), []string{},
		},
		"a cluster that a claim names is the claim's, before it says so itself": {
			func() poolplan.Snapshot {
				s := snapshot(testobj.Pool("p", testobj.Size(0)), free("p-a", 2))
				s.Claims = []poolplan.Claim{{Name: "a", UID: "uid-of-a", Namespace: "p-a", Created: now}}
				return s
			}(), []string{},
		},
		"a claim whose cluster records another claim waits again": {
			func() poolplan.Snapshot {
				s := snapshot(testobj.Pool("p", testobj.Size(0)), with(free("p-a", 2), claimedBy("b")))
				s.Claims = []poolplan.Claim{{Name: "a", UID: "uid-of-a", Namespace: "p-a", Created: now}, {Name: "b", UID: "uid-of-b", Created: now}}
				return s
			}(), []string{"create p-bbbbb"},
		},
		"a cluster whose data is missing is replaced": {
			snapshot(testobj.Pool("p", testobj.Size(2)), with(free("p-a", 2), dataMissing), free("p-b", 1)), []string{"delete p-a"},
		},
		"one whose data may come back is waited for": {
			snapshot(testobj.Pool("p", testobj.Size(2)), with(free("p-a", 2), missingFor(9*time.Minute)), free("p-b", 1)), []string{},
		},
		"one whose data does not come back is replaced": {
			snapshot(testobj.Pool("p", testobj.Size(2)), with(free("p-a", 2), missingFor(10*time.Minute)), free("p-b", 1)), []string{"delete p-a"},
		},
		"a clock that was ahead keeps none": {
			snapshot(testobj.Pool("p", testobj.Size(2)), with(free("p-a", 2), missingFor(-time.Hour)), free("p-b", 1)), []string{"delete p-a"},
		},
		"where many miss their data, one is given up at a time": {
			snapshot(testobj.Pool("p", testobj.Size(3)), with(free("p-a", 3), missingFor(time.Hour)), with(free("p-b", 2), missingFor(time.Hour)), with(free("p-c", 1), missingFor(time.Hour))), []string{"delete p-a"},
		},
		"the next one goes when the former is gone": {
			snapshot(testobj.Pool("p", testobj.Size(1)), with(with(free("p-a", 3), missingFor(time.Hour)), deletingFor(time.Second)), with(free("p-b", 2), missingFor(time.Hour))), []string{},
		},
		"and the one in its place is installed": {
			snapshot(testobj.Pool("p", testobj.Size(2)), with(free("p-a", 3), missingFor(time.Hour)), with(free("p-b", 2), uninstalled)), []string{},
		},
		"none is given up while the one in its place lacks what it is made of": {
			func() poolplan.Snapshot {
				s := snapshot(testobj.Pool("p", testobj.Size(2)), with(free("p-b", 2), missingFor(time.Hour)))
				s.Missing = []string{"pull secret: gone"}
				return s
			}(), []string{},
		},
		"nor while creation is slowed down": {
			snapshot(testobj.Pool("p", testobj.Size(2), func(p *hivev1.ClusterPool) {
				p.Status.Provisioning = &hivev1.ClusterPoolProvisioning{ConsecutiveFailures: 1, LastFailureTime: new(metav1.NewTime(now)), NextAttemptTime: new(metav1.NewTime(now.Add(time.Minute)))}
			}), with(free("p-b", 2), missingFor(time.Hour))), []string{},
		},
		"one is given up where maxSize allows no more beside it": {
			snapshot(testobj.Pool("p", testobj.Size(2), testobj.MaxSize(1)), with(free("p-b", 2), missingFor(time.Hour))), []string{"delete p-b"},
		},
		"a claimed cluster whose data is missing stays with its claim": {
			snapshot(testobj.Pool("p", testobj.Size(1)), with(with(free("p-a", 2), dataMissing), claimedBy("a")), free("p-b", 1)), []string{},
		},
		"a cluster that is paused while its data is elsewhere is left alone": {
			snapshot(testobj.Pool("p", testobj.Size(1)), with(with(free("p-a", 2), dataMissing), func(c *poolplan.Cluster) { c.Paused = true })), []string{},
		},
		"a claimed cluster is not deleted, whatever size says": {
			snapshot(testobj.Pool("p", testobj.Size(0)), with(free("p-a", 2), claimedBy("a"))), []string{},
		},
		"a marked cluster goes, claimed or not": {
			snapshot(testobj.Pool("p", testobj.Size(0)), with(with(free("p-a", 2), claimedBy("a")), marked)), []string{"delete p-a"},
		},
		"a protected cluster stays": {
			snapshot(testobj.Pool("p", testobj.Size(0)), with(free("p-a", 2), protected)), []string{},
		},
		"clusters of one age are ordered by name": {
			snapshot(testobj.Pool("p", testobj.Size(2), testobj.RunningCount(1)), free("p-b", 1), free("p-a", 1)), []string{"power p-a Running"},
		},
		"a pool without its dependencies creates no cluster, and the rest goes on": {
			func() poolplan.Snapshot {
				s := snapshot(testobj.Pool("p", testobj.Size(3), testobj.RunningCount(1)), free("p-a", 2))
				s.Missing = []string{"pull secret: gone"}
				return s
			}(), []string{"power p-a Running"},
		},
		"maxSize counts claimed and deleting clusters": {
			snapshot(testobj.Pool("p", testobj.Size(3), testobj.MaxSize(3)), with(free("p-a", 2), claimedBy("a")), with(free("p-b", 2), func(c *poolplan.Cluster) { c.Deleting = true })),
			[]string{"create p-bbbbb"},
		},
		"a name that exists is not made again": {
			func() poolplan.Snapshot {
				s := snapshot(testobj.Pool("p", testobj.Size(1)))
				s.Namespaces = []poolplan.Namespace{{Name: "p-bbbbb", UID: "n", Deleting: true}}
				s.Slugs = []string{"bbbbb", "ccccc"}
				return s
			}(), []string{"create p-ccccc"},
		},
		"an empty namespace of a cluster that is gone is reaped, one with a cluster in it or another name is not": {
			func() poolplan.Snapshot {
				s := snapshot(testobj.Pool("p", testobj.Size(0)))
				s.Namespaces = []poolplan.Namespace{{Name: "p-bbbbb"}, {Name: "p-ccccc", Occupied: true}, {Name: "kube-system"}}
				return s
			}(), []string{"reap p-bbbbb"},
		},
		"power that is paused stays": {
			snapshot(testobj.Pool("p", testobj.Size(1)), with(with(free("p-a", 2), running), func(c *poolplan.Cluster) { c.PowerPaused = true })), []string{},
		},
		"an unset power state is Running": {
			snapshot(testobj.Pool("p", testobj.Size(2), testobj.RunningCount(1)), with(free("p-a", 2), func(c *poolplan.Cluster) { c.Power = "" }), free("p-b", 1)), []string{},
		},
		"a cluster of unknown version goes before one of an earlier version": {
			func() poolplan.Snapshot {
				s := snapshot(testobj.Pool("p", testobj.Size(2), testobj.MaxSize(2)), with(free("p-a", 9), func(c *poolplan.Cluster) { c.Version = "old" }), free("p-b", 1))
				s.Clusters[1].Version = ""
				return s
			}(), []string{"delete p-b"},
		},
		"while a pool cannot fill, stale clusters are replaced nevertheless": {
			snapshot(testobj.Pool("p", testobj.Size(5), testobj.MaxSize(1)), with(free("p-a", 9), func(c *poolplan.Cluster) { c.Version = "old" })), []string{"delete p-a"},
		},
		"while a pool fills, stale clusters stay": {
			snapshot(testobj.Pool("p", testobj.Size(2)), with(free("p-a", 9), func(c *poolplan.Cluster) { c.Version = "old" }),
				with(free("p-b", 1), func(c *poolplan.Cluster) { c.Installed = false })), []string{},
		},
		"a stale cluster that is installing holds up the rollout for a while": {
			snapshot(testobj.Pool("p", withoutTimeout), with(free("p-a", 59), hanging)), []string{},
		},
		"a stale cluster that hangs in its installation is replaced": {
			snapshot(testobj.Pool("p", withoutTimeout), with(free("p-a", 60), hanging)), []string{"delete p-a"},
		},
		"a stale cluster that hangs does not use up maxConcurrent": {
			snapshot(testobj.Pool("p", withoutTimeout, testobj.Size(2), testobj.MaxConcurrent(1)), with(free("p-a", 60), hanging)), []string{"create p-bbbbb"},
		},
		"a cluster of this version that hangs is waited for": {
			snapshot(testobj.Pool("p", withoutTimeout), with(free("p-a", 600), func(c *poolplan.Cluster) { c.Installed = false })), []string{},
		},
		"a pool that is deleted does not wait for installations that use up maxConcurrent": {
			snapshot(testobj.Pool("p", testobj.MaxConcurrent(1), testobj.DeletedAt(now)), with(free("p-a", 1), uninstalled), free("p-b", 2)), []string{"delete p-a"},
		},
		"a smaller size does not wait for installations that use up maxConcurrent": {
			snapshot(testobj.Pool("p", testobj.Size(0), testobj.MaxConcurrent(1)), with(free("p-a", 1), uninstalled), free("p-b", 2)), []string{"delete p-a"},
		},
		"a removed name does not wait for installations that use up maxConcurrent": {
			snapshot(testobj.Pool("p", testobj.Inventory("blue"), testobj.MaxConcurrent(1)), with(free("p-a", 1), uninstalled)), []string{"delete p-a"},
		},
		"a frozen pool deletes no installation": {
			snapshot(testobj.Pool("p", testobj.Size(0), testobj.MaxConcurrent(0)), with(free("p-a", 1), uninstalled)), []string{},
		},
		"a deletion holds up the rollout for a while": {
			snapshot(testobj.Pool("p"), with(free("p-a", 9), stale), with(free("p-b", 600), deletingFor(59*time.Minute))), []string{},
		},
		"a deletion that hangs does not hold up the rollout": {
			snapshot(testobj.Pool("p"), with(free("p-a", 9), stale), with(free("p-b", 600), deletingFor(time.Hour))), []string{"create p-bbbbb"},
		},
		"a deletion that hangs does not hold up a rollout without room": {
			snapshot(testobj.Pool("p", testobj.MaxSize(2)), with(free("p-a", 9), stale), with(free("p-b", 600), deletingFor(time.Hour))), []string{"delete p-a"},
		},
		"a deletion that hangs is part of maxConcurrent": {
			snapshot(testobj.Pool("p", testobj.MaxConcurrent(1)), with(free("p-a", 9), stale), with(free("p-b", 600), deletingFor(time.Hour))), []string{},
		},
		"a stale cluster that hangs and is paused is left alone": {
			snapshot(testobj.Pool("p", withoutTimeout), with(free("p-a", 60), func(c *poolplan.Cluster) { hanging(c); c.Paused = true })), []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.snapshot.Pool.DeepCopy()
			d := poolplan.Plan(now, c.snapshot)
			require.Equal(t, c.actions, kinds(d.Actions))
			require.Equal(t, before, c.snapshot.Pool, "the snapshot is not changed")
		})
	}
}

func TestPlanWaitsForAViewAsNewAsTheLastTicket(t *testing.T) {
	s := snapshot(testobj.Pool("p", testobj.Size(1)))
	for name, c := range map[string]struct {
		last hivev1.ClusterPoolObservation
		live bool
		wait bool
	}{
		"as new":                     {hivev1.ClusterPoolObservation{ClusterDeployments: "100", ClusterClaims: "100"}, false, false},
		"older clusters":             {hivev1.ClusterPoolObservation{ClusterDeployments: "101", ClusterClaims: "9"}, false, true},
		"older claims":               {hivev1.ClusterPoolObservation{ClusterDeployments: "99", ClusterClaims: "1000"}, false, true},
		"nonsense":                   {hivev1.ClusterPoolObservation{ClusterDeployments: "x"}, false, true},
		"no view is newer than live": {hivev1.ClusterPoolObservation{ClusterDeployments: "1000"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s.Pool.Status.Observed, s.Live = &c.last, c.live
			d := poolplan.Plan(now, s)
			require.Equal(t, c.wait, d.Wait)
			require.Equal(t, c.wait, len(d.Actions) == 0)
		})
	}
}

// A withdrawal holds its name, and a pool that is deleted.
func TestAWithdrawalOfAClockThatWasAheadCountsFromNow(t *testing.T) {
	s := snapshot(testobj.Pool("p", testobj.Size(0)))
	s.Pool.Status.Operations = []hivev1.ClusterPoolOperation{{Namespace: "p-bbbbb", Kind: hivev1.OperationDelete, Why: "CreationRefused", RecordedAt: metav1.NewTime(now.Add(24 * time.Hour))}}
	d := poolplan.Plan(now, s)
	require.Equal(t, poolplan.StatusTicket, d.Change)
	require.Len(t, d.Status.Operations, 1)
	require.Equal(t, metav1.NewTime(now), d.Status.Operations[0].RecordedAt)
	require.Equal(t, time.Minute, d.RequeueAfter)
	s.Pool.Status = d.Status
	require.Equal(t, []string{"withdraw p-bbbbb"}, kinds(poolplan.Plan(now.Add(time.Minute), s).Actions))
}

func TestPassIsBounded(t *testing.T) {
	s := snapshot(testobj.Pool("p", testobj.Size(1000)))
	s.Slugs = nil
	for a := range 26 {
		for b := range 26 {
			s.Slugs = append(s.Slugs, "bbb"+string(rune('a'+a))+string(rune('a'+b)))
		}
	}
	var operations int
	for range 10 {
		d := poolplan.Plan(now, s)
		require.LessOrEqual(t, len(d.Status.Operations)-operations, poolplan.SliceOfPass)
		require.LessOrEqual(t, len(d.Status.Operations), poolplan.MaxOperations)
		operations = len(d.Status.Operations)
		s.Pool.Status = d.Status
	}
	require.Equal(t, poolplan.MaxOperations, operations)
}

func TestLongNamesFit(t *testing.T) {
	s := snapshot(testobj.Pool(strings.Repeat("long.", 20), testobj.Size(1)))
	d := poolplan.Plan(now, s)
	require.Len(t, d.Status.Operations, 1)
	name := d.Status.Operations[0].Namespace
	require.LessOrEqual(t, len(name), 63)
	require.NotContains(t, name, ".")
	require.True(t, strings.HasSuffix(name, "-bbbbb"))
}

// A MachinePool is named after its cluster, and one that is named too long is refused: the pool would have no cluster, ever.
func TestNamesOfMachinePoolsFit(t *testing.T) {
	for _, length := range []int{1, 18, 54} {
		pool := testobj.Pool(strings.Repeat("long.", 12), testobj.Size(1))
		pool.Spec.MachinePools = []hivev1.ClusterPoolMachinePool{{Name: "gpu"}, {Name: strings.Repeat("w", length)}}
		name := poolplan.Plan(now, snapshot(pool)).Status.Operations[0].Namespace
		require.LessOrEqual(t, len(name+"-"+pool.Spec.MachinePools[1].Name), 63)
		require.Regexp(t, "^lo[a-z-]*-bbbbb$", name)
		pool.Spec.SkipMachinePools = true
		require.Greater(t, len(poolplan.Plan(now, snapshot(pool)).Status.Operations[0].Namespace), 60)
	}
}

func TestSecondPlanIsEmpty(t *testing.T) {
	s := snapshot(testobj.Pool("p", testobj.Size(1)), free("p-a", 1))
	d := poolplan.Plan(now, s)
	require.Equal(t, poolplan.StatusReport, d.Change)
	s.Pool.Status = d.Status
	s.View.ClusterDeployments = "200"
	d = poolplan.Plan(now.Add(time.Hour), s)
	require.Equal(t, poolplan.StatusSame, d.Change, "a newer view alone is no reason to write")
	require.Empty(t, d.Actions)
	require.Zero(t, d.RequeueAfter)
}

// writeInventory is what a pool says whose inventory is no object.
const writeInventory = "spec.inventory is no object that lists names of clusters; write 'inventory: {clusterDeployments: [{name: blue}]}'. " +
	"A list of ClusterDeploymentCustomizations has no effect here: what they change goes into the template that installConfigSecretTemplateRef names"

// TestAnInventoryThatIsNoObjectChangesNoCluster wants the clusters of such a pool to wait for the inventory to be rewritten: stale ones, ones of this version, and ones with a name.
func TestAnInventoryThatIsNoObjectChangesNoCluster(t *testing.T) {
	pool := testobj.Pool("p", testobj.Size(3), testobj.UnusableInventory(`[{"name":"red"}]`))
	pool.Status.ClusterNameUsage = map[string]string{"red": "p-c"}
	version := poolplan.Version(pool.Spec)
	d := poolplan.Plan(now, snapshot(pool,
		with(free("p-a", 3), func(c *poolplan.Cluster) { c.Version = "of-before" }),
		with(free("p-b", 2), func(c *poolplan.Cluster) { c.Version = version }),
		with(free("p-c", 1), func(c *poolplan.Cluster) { c.Version, c.ClusterName = version, "red" }),
	))
	require.Empty(t, d.Actions)
	require.Empty(t, d.Status.Operations)

	pool.Spec.Inventory = &hivev1.ClusterPoolInventory{ClusterDeployments: []hivev1.InventoryClusterDeployment{{Name: "red"}}}
	require.Equal(t, version, poolplan.Version(pool.Spec), "to rewrite the inventory makes no cluster stale")
}

func TestConditions(t *testing.T) {
	deleted := func(p *hivev1.ClusterPool) { p.DeletionTimestamp = new(metav1.NewTime(now)) }
	for name, c := range map[string]struct {
		snapshot  poolplan.Snapshot
		condition string
		status    string
		reason    string
		message   string
	}{
		"dependencies are there": {snapshot(testobj.Pool("p")), hivev1.ClusterPoolMissingDependencies, "False", "Verified", "Dependencies verified"},
		"a dependency is missing": {func() poolplan.Snapshot {
			s := snapshot(testobj.Pool("p"))
			s.Missing = []string{"a: b", "c: d"}
			return s
		}(), hivev1.ClusterPoolMissingDependencies, "True", "Missing", "a: b; c: d"},
		"there is room": {snapshot(testobj.Pool("p", testobj.MaxSize(9))), hivev1.ClusterPoolCapacityAvailable, "True", "Available", "There is capacity to add more clusters to the pool."},
		"maxSize is reached": {snapshot(testobj.Pool("p", testobj.MaxSize(1)), free("p-a", 1)), hivev1.ClusterPoolCapacityAvailable, "False", "MaxCapacity",
			"Pool is at maximum capacity of 1 waiting and claimed clusters."},
		"the inventory is what limits": {snapshot(testobj.Pool("p", testobj.Size(2), testobj.Inventory("red"))), hivev1.ClusterPoolCapacityAvailable, "False", "InventoryExhausted",
			"All 1 names of the inventory are taken; add names, or release claims."},
		"all clusters are current": {snapshot(testobj.Pool("p"), free("p-a", 1)), hivev1.ClusterPoolAllClustersCurrent, "True", "ClusterDeploymentsCurrent",
			"All unclaimed clusters are of the pool's present version"},
		"a cluster is stale": {snapshot(testobj.Pool("p", testobj.MaxConcurrent(0)), with(free("p-a", 1), func(c *poolplan.Cluster) { c.Version = "old" })),
			hivev1.ClusterPoolAllClustersCurrent, "False", "SomeClusterDeploymentsStale", "These clusters are of an earlier version of the pool and are being replaced: p-a"},
		"no inventory": {snapshot(testobj.Pool("p")), hivev1.ClusterPoolInventoryValid, "Unknown", "Initialized", "The pool has no inventory"},
		"an entry without a name": {snapshot(testobj.Pool("p", testobj.Inventory("red", ""), testobj.Size(2)), free("red-a", 1)), hivev1.ClusterPoolInventoryValid, "False", "Invalid",
			"Entries of the inventory without a name are not used: 1; write their names, or remove them"},
		"a list is no inventory": {snapshot(testobj.Pool("p", testobj.UnusableInventory(`[{"name":"red"}]`))), hivev1.ClusterPoolInventoryValid, "False", "Invalid", writeInventory},
		"claims learn that a list is no inventory": {snapshot(testobj.Pool("p", testobj.UnusableInventory(`[]`))), hivev1.ClusterPoolCapacityAvailable, "False", "InventoryExhausted",
			writeInventory},
		"a pool that waits for its inventory to be rewritten": {snapshot(testobj.Pool("p", testobj.UnusableInventory(`[]`))), hivev1.ClusterPoolReady, "False", "Invalid",
			"0 of 1 clusters are installed; " + writeInventory},
		"the pool is not deleted": {snapshot(testobj.Pool("p")), hivev1.ClusterPoolDeletionPossible, "Unknown", "Initialized", "The pool is not being deleted"},
		"a deleted pool waits for clusters": {snapshot(testobj.Pool("p", deleted), free("p-a", 1)), hivev1.ClusterPoolDeletionPossible, "False", "ClusterDeploymentsPendingCleanup",
			"These clusters have to go first, and claimed ones have to be released: p-a"},
		"a deleted pool is empty": {snapshot(testobj.Pool("p", deleted)), hivev1.ClusterPoolDeletionPossible, "True", "DeletionPossible", "No ClusterDeployments pending cleanup"},
		"a frozen pool": {snapshot(testobj.Pool("p", testobj.MaxConcurrent(0))), hivev1.ClusterPoolReady, "False", "Frozen",
			"0 of 1 clusters are installed; maxConcurrent is 0, so that none is created"},
	} {
		t.Run(name, func(t *testing.T) {
			d := poolplan.Plan(now, c.snapshot)
			got := hivev1.FindCondition(d.Status.Conditions, c.condition)
			require.NotNil(t, got)
			require.Equal(t, []string{c.status, c.reason, c.message}, []string{string(got.Status), got.Reason, got.Message})
		})
	}
}

func TestRecommendedRunningCount(t *testing.T) {
	resumed := func(took time.Duration) func(*poolplan.Cluster) {
		return func(c *poolplan.Cluster) { c.ResumeTook = took }
	}
	for name, c := range map[string]struct {
		clusters []poolplan.Cluster
		claims   int
		want     *hivev1.RunningCountRecommendation
	}{
		"without claims there is nothing to recommend": {[]poolplan.Cluster{with(free("p-a", 9), resumed(time.Minute))}, 0, nil},
		"without a time there is nothing to recommend": {[]poolplan.Cluster{free("p-a", 9)}, 5, nil},
		"13 claims an hour and 5 minutes to resume need 2": {
			[]poolplan.Cluster{with(free("p-a", 9), resumed(4*time.Minute)), with(free("p-b", 9), resumed(6*time.Minute))}, 13,
			&hivev1.RunningCountRecommendation{RunningCount: 2, ClaimsPerHour: 13, SecondsToUsable: 300},
		},
		"as long as none resumed, the time to install counts": {
			[]poolplan.Cluster{with(free("p-a", 90), func(c *poolplan.Cluster) { c.InstalledAt = c.Created.Add(30 * time.Minute) })}, 3,
			&hivev1.RunningCountRecommendation{RunningCount: 2, ClaimsPerHour: 3, SecondsToUsable: 1800},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(testobj.Pool("p", testobj.Size(2)), c.clusters...)
			s.RecentClaims = c.claims
			require.Equal(t, c.want, poolplan.Plan(now, s).Status.RunningCountRecommendation)
		})
	}
}
