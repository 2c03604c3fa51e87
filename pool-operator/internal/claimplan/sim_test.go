// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// disturb lets something happen that is not the operator's doing.
func (w *simulation) disturb() {
	switch n := w.rng.IntN(100); {
	case n < 30:
		w.newClaim()
	case n < 38:
		if c := pick(w, w.claims); c != nil && c.DeletionTimestamp.IsZero() {
			w.deleteClaim(c.Name, "deleted by its user")
		}
	case n < 58 && len(w.cds) < 8:
		w.newCluster()
	case n < 72:
		if cd := pick(w, w.cds); cd != nil {
			w.install(cd.Name)
		}
	case n < 78: // the pool scales down: an unclaimed cluster that no claim names
		if cd := pick(w, w.cds); cd != nil && cd.Spec.ClusterPoolRef.ClaimName == "" && cd.DeletionTimestamp == nil {
			_, _ = w.changeCluster(cd.Name, "", cd.ResourceVersion, "deleted by the pool", func(cd *hivev1.ClusterDeployment) { cd.DeletionTimestamp = new(metav1.NewTime(w.now)) })
		}
	case n < 92: // deletions end, the pool deletes what is marked
		w.deprovision()
	case n < 94: // a user names a cluster in a claim
		if c, cd := pick(w, w.claims), pick(w, w.cds); c != nil && cd != nil && len(c.Finalizers) == 0 {
			_, _ = w.changeClaim(c.Name, "", "", "presets a namespace", func(c *hivev1.ClusterClaim) { c.Spec.Namespace = cd.Name })
			w.preset[c.UID] = true
		}
	case n < 96:
		pool := w.pool.DeepCopy()
		pool.Spec.MaxConcurrent = []*int32{nil, new(int32(2))}[w.rng.IntN(2)]
		pool.Spec.ClaimPolicy = []hivev1.ClaimPolicy{hivev1.ClaimPolicyOldestFirst, hivev1.ClaimPolicyRunningFirst}[w.rng.IntN(2)]
		w.pool = pool
		w.record("pool changes")
	case n < 98:
		w.drift()
	default:
		w.now = w.now.Add(time.Duration(w.rng.IntN(30)) * time.Second)
	}
}

// drift lets others write: a user annotates, pauses or resumes a claim, or removes its finalizer; a cluster dies, or is restored from a backup.
func (w *simulation) drift() {
	c, cd := pick(w, w.claims), pick(w, w.cds)
	switch w.rng.IntN(5) {
	case 0:
		if cd != nil {
			_, _ = w.changeCluster(cd.Name, "", "", "annotated by a user", func(*hivev1.ClusterDeployment) {})
		}
	case 1:
		if c != nil {
			_, _ = w.changeClaim(c.Name, "", "", "annotated by a user", func(*hivev1.ClusterClaim) {})
		}
	case 2:
		if c != nil && !hasFinalizer(c) {
			_, _ = w.changeClaim(c.Name, "", "", "paused or not", func(c *hivev1.ClusterClaim) {
				c.Annotations = map[string]string{hivev1.AnnotationReconcilePause: []string{"True", "false"}[w.rng.IntN(2)]}
			})
		}
	case 3:
		if c != nil && !c.DeletionTimestamp.IsZero() {
			_, _ = w.changeClaim(c.Name, "", "", "deleted by force", func(c *hivev1.ClusterClaim) { c.Finalizers = nil })
		}
	case 4:
		if cd != nil && cd.Spec.Installed {
			_, _ = w.changeCluster(cd.Name, "", "", "dies", func(cd *hivev1.ClusterDeployment) {
				cd.Status.Conditions = conditionsWith(cd, hivev1.Condition{Type: hivev1.ClusterDeploymentReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.now)})
			})
		}
	}
}

// conditionsWith are the conditions of the cluster with c in place of that of its type.
func conditionsWith(cd *hivev1.ClusterDeployment, c hivev1.Condition) []hivev1.Condition {
	out := slices.DeleteFunc(slices.Clone(cd.Status.Conditions), func(o hivev1.Condition) bool { return o.Type == c.Type })
	return append(out, c)
}

func (w *simulation) deprovision() {
	for _, name := range slices.Sorted(maps.Keys(w.cds)) {
		cd := w.cds[name]
		switch {
		case cd.DeletionTimestamp != nil:
			delete(w.cds, name)
			delete(w.rights, name)
			w.nextVersion()
			w.record("cluster %s: gone", name)
		case cd.Annotations[hivev1.AnnotationRemoveFromPool] == "true":
			_, _ = w.changeCluster(name, "", "", "marked, deleted by the pool", func(cd *hivev1.ClusterDeployment) { cd.DeletionTimestamp = new(metav1.NewTime(w.now)) })
		}
	}
}

func (w *simulation) newClaim() {
	w.serial++
	name := claimName(w)
	if w.claims[name] != nil {
		return
	}
	c := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: simNamespace, Name: name, UID: types.UID(fmt.Sprintf("u%d", w.serial)), CreationTimestamp: metav1.NewTime(w.now.Truncate(time.Second)),
	}}
	c.Spec.ClusterPoolName = "p"
	if w.rng.IntN(2) == 0 {
		c.Spec.Subjects = subjects()
	}
	if w.rng.IntN(4) == 0 {
		c.Spec.Lifetime = &metav1.Duration{Duration: time.Minute}
	}
	if w.rng.IntN(4) == 0 {
		c.Spec.QueueTimeout = &metav1.Duration{Duration: time.Minute}
	}
	w.putClaim(c, "created")
}

func claimName(w *simulation) string { return fmt.Sprintf("c%d", w.rng.IntN(5)) }

func (w *simulation) newCluster() {
	w.serial++
	name := fmt.Sprintf("p-%d", w.serial)
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: name, Name: name, UID: types.UID("cd" + name), CreationTimestamp: metav1.NewTime(w.now.Truncate(10 * time.Second)),
	}}
	cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: simNamespace, PoolName: "p"}
	w.putCluster(cd, "created")
	if w.rng.IntN(2) == 0 {
		w.install(name)
	}
}

func (w *simulation) install(name string) {
	_, _ = w.changeCluster(name, "", "", "installs or changes power", func(cd *hivev1.ClusterDeployment) {
		cd.Spec.Installed = true
		cd.Spec.ClusterMetadata = &hivev1.ClusterMetadata{AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "kubeconfig"}}
		cd.Status.PowerState = []hivev1.PowerState{hivev1.PowerStateRunning, hivev1.PowerStateHibernating, hivev1.PowerStateWaitingForMachines}[w.rng.IntN(3)]
	})
}

func pick[T any](w *simulation, m map[string]*T) *T {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return nil
	}
	return m[keys[w.rng.IntN(len(keys))]]
}

// check holds after every single write.
func (w *simulation) check() error {
	if w.forbidden != nil {
		return w.forbidden
	}
	clusterOf := map[types.UID]string{}
	for name, cd := range w.cds {
		uid := cd.Spec.ClusterPoolRef.ClaimUID
		if uid == "" {
			continue
		}
		if before := w.owner[name]; before != "" && before != uid {
			return fmt.Errorf("cluster %s went from claim %s to claim %s", name, before, uid)
		}
		w.owner[name] = uid
		if other := clusterOf[uid]; other != "" {
			return fmt.Errorf("claim %s has clusters %s and %s", uid, name, other)
		}
		clusterOf[uid] = name
	}
	for namespace, g := range w.rights {
		if cd := w.cds[namespace]; cd == nil || cd.Spec.ClusterPoolRef.ClaimUID != g.claim {
			return fmt.Errorf("claim %s has rights in %s, which is not its cluster", g.claim, namespace)
		}
	}
	return nil
}

// settled says what is left undone when all replicas have seen every write and none acts any more.
func (w *simulation) settled() error {
	free := 0
	for _, cd := range w.cds {
		c := ClusterOf(cd)
		if c.Usable() {
			free++
		}
		if c.Claimed() && !c.Deleting && !c.Marked {
			if claim := w.claims[c.ClaimName]; claim == nil || claim.UID != c.ClaimUID {
				return fmt.Errorf("cluster %s is kept for claim %s, which is gone", c.Namespace, c.ClaimUID)
			} else if claim.Spec.Namespace != c.Namespace || !hasFinalizer(claim) {
				return fmt.Errorf("claim %s does not name its cluster %s", claim.Name, c.Namespace)
			}
		}
	}
	for namespace := range w.rights {
		if c := ClusterOf(w.cds[namespace]); w.claims[c.ClaimName] == nil || !w.claims[c.ClaimName].DeletionTimestamp.IsZero() {
			return fmt.Errorf("subjects have rights in %s, whose claim is gone", namespace)
		}
	}
	for _, claim := range w.claims {
		pending := hivev1.FindCondition(claim.Status.Conditions, hivev1.ClusterClaimPending)
		waiter := WaiterOf(claim)
		switch {
		case waiter.Paused:
		case !claim.DeletionTimestamp.IsZero():
			if cd := w.cds[claim.Spec.Namespace]; cd == nil || cd.DeletionTimestamp == nil {
				return fmt.Errorf("claim %s is deleted and stays", claim.Name)
			}
		case pending == nil:
			return fmt.Errorf("claim %s says nothing", claim.Name)
		case pending.Status == corev1.ConditionTrue && !waiter.Left(w.now) && claim.Spec.Namespace == "" && free > 0:
			return fmt.Errorf("claim %s waits while %d clusters are free", claim.Name, free)
		case pending.Status == corev1.ConditionTrue && claim.Spec.Namespace == "" && hasFinalizer(claim):
			return fmt.Errorf("claim %s waits with a finalizer", claim.Name)
		}
	}
	return nil
}

// settle shows all replicas every write until none acts.
func (w *simulation) settle(replicas []*replica) error {
	for range 60 {
		busy := false
		before := len(w.history)
		for _, cd := range w.cds {
			if c := ClusterOf(cd); c.OrphanReason == hivev1.ReasonClaimDeleted && !c.Deleting {
				w.now = w.now.Add(OrphanGrace)
				busy = true
				break
			}
		}
		w.deprovision()
		w.deprovision()
		names := map[string]bool{}
		for name := range w.claims {
			names[name] = true
		}
		for _, cd := range w.cds {
			names[cd.Spec.ClusterPoolRef.ClaimName] = true
		}
		for _, r := range replicas {
			r.crashAfter = -1
			for _, name := range slices.Sorted(maps.Keys(names)) {
				r.sync()
				busy = r.reconcile(name) || busy
				if err := w.check(); err != nil {
					return err
				}
			}
		}
		if !busy && before == len(w.history) {
			return w.settled()
		}
	}
	return fmt.Errorf("the state does not settle")
}

// seeds returns n seeds, or as many as CLAIMPLAN_SEEDS says, or the one that CLAIMPLAN_SEED says.
func seeds(t *testing.T, n int) []uint64 {
	if s := os.Getenv("CLAIMPLAN_SEEDS"); s != "" {
		count, err := strconv.Atoi(s)
		require.NoError(t, err)
		n = count
	}
	if s := os.Getenv("CLAIMPLAN_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return []uint64{seed}
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(i + 1)
	}
	return out
}

func TestRandomInterleavingsOfTwoReplicasWithLaggingViews(t *testing.T) {
	const steps = 1000
	all := seeds(t, 150)
	bound := 0
	for _, seed := range all {
		w := newSimulation(seed)
		replicas := []*replica{newReplica(w), newReplica(w)}
		fail := func(err error) {
			t.Helper()
			if err != nil {
				last := w.trace[max(0, len(w.trace)-40):]
				t.Fatalf("seed %d (run again with CLAIMPLAN_SEED=%d): %v\n%s", seed, seed, err, joinLines(last))
			}
		}
		for range steps {
			if w.rng.IntN(5) == 0 {
				w.disturb()
			} else {
				r := replicas[w.rng.IntN(len(replicas))]
				r.catchUp()
				if w.rng.IntN(30) == 0 {
					r.crashAfter = w.rng.IntN(5)
				}
				_, _ = r.step(claimName(w))
			}
			fail(w.check())
			if w.rng.IntN(100) == 0 {
				fail(w.settle(replicas))
			}
		}
		fail(w.settle(replicas))
		bound += len(w.owner)
	}
	t.Logf("%d seeds × %d steps, %d clusters were claimed", len(all), steps, bound)
	require.Positive(t, bound)
}

func joinLines(lines []string) string {
	out := ""
	for _, l := range lines {
		out += l + "\n"
	}
	return out
}

// TestClaimsAreServedInOrder looks at claims in any order, and gives none a cluster before there is one for every earlier claim.
func TestClaimsAreServedInOrder(t *testing.T) {
	served := 0
	for _, seed := range seeds(t, 100) {
		w := newSimulation(seed)
		r := newReplica(w)
		for range 500 {
			if w.rng.IntN(3) == 0 {
				w.disturb()
				continue
			}
			name := claimName(w)
			var waiters []Waiter
			var clusters []Cluster
			for _, c := range w.claims {
				waiters = append(waiters, WaiterOf(c))
			}
			for _, cd := range w.cds {
				clusters = append(clusters, ClusterOf(cd))
			}
			queue, free := poolview.Waiting(w.now, waiters, clusters), poolview.Free(w.now, poolview.PoolOf(w.pool), waiters, clusters)
			turn := slices.IndexFunc(queue, func(q Waiter) bool { return q.Name == name })
			r.sync()
			r.reconcile(name)
			if c := w.claims[name]; turn >= 0 && WaiterOf(c).Namespace != "" {
				served++
				require.Less(t, turn, len(free), "seed %d: %s was served out of turn\n%s", seed, name, joinLines(w.trace[max(0, len(w.trace)-20):]))
			} else if turn >= 0 {
				require.GreaterOrEqual(t, turn, len(free), "seed %d: it was the turn of %s\n%s", seed, name, joinLines(w.trace[max(0, len(w.trace)-20):]))
			}
		}
	}
	t.Logf("%d claims were served", served)
}
