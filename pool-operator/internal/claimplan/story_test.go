// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

var update = flag.Bool("update", false, "write the golden transcripts anew")

// story is a simulation in which one thing happens at a time, with every view up to date unless it says otherwise.
type story struct {
	t *testing.T
	*simulation
	a, b *replica
	said strings.Builder
}

func tell(t *testing.T) *story {
	w := newSimulation(0)
	s := &story{t: t, simulation: w, a: newReplica(w), b: newReplica(w)}
	t.Cleanup(s.compare)
	return s
}

func (s *story) compare() {
	file := filepath.Join("testdata", strings.ReplaceAll(s.t.Name(), "/", "_")+".txt")
	if *update {
		require.NoError(s.t, os.MkdirAll("testdata", 0o750))
		require.NoError(s.t, os.WriteFile(file, []byte(s.said.String()), 0o600))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(s.t, err, "run the test with -update once")
	require.Equal(s.t, string(want), s.said.String())
}

func (s *story) say(format string, args ...any) { fmt.Fprintf(&s.said, format+"\n", args...) }

func (s *story) claims(name string, change ...func(*hivev1.ClusterClaim)) {
	s.serial++
	c := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: simNamespace, Name: name, UID: types.UID(fmt.Sprintf("uid-%d", s.serial)), CreationTimestamp: metav1.NewTime(s.now),
	}}
	c.Spec.ClusterPoolName = "p"
	for _, f := range change {
		f(c)
	}
	s.putClaim(c, "created")
	s.say("%s claims a cluster", name)
}

// has adds a cluster to the pool.
func (s *story) has(name string, change ...func(*hivev1.ClusterDeployment)) {
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.NewTime(s.now)}}
	cd.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: simNamespace, PoolName: "p"}
	cd.Spec.Installed, cd.Status.PowerState = true, hivev1.PowerStateRunning
	cd.Spec.ClusterMetadata = &hivev1.ClusterMetadata{AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "kubeconfig"}}
	for _, f := range change {
		f(cd)
	}
	s.putCluster(cd, "created")
	s.say("the pool has cluster %s", name)
}

func installing(cd *hivev1.ClusterDeployment) {
	cd.Spec.Installed, cd.Spec.ClusterMetadata, cd.Status.PowerState = false, nil, ""
}

func asleep(cd *hivev1.ClusterDeployment) {
	cd.Spec.PowerState, cd.Status.PowerState = hivev1.PowerStateHibernating, hivev1.PowerStateHibernating
}

func (s *story) passes(d time.Duration) {
	s.now = s.now.Add(d)
	s.say("%s pass", d)
}

// looks lets the operator look at the claim once, and tells what it did and what the claim says then.
func (s *story) looks(name string) {
	s.a.sync()
	s.goesOn(s.a, name)
}

// goesOn runs a pass of the replica with the views that it has.
func (s *story) goesOn(r *replica, name string) {
	from := len(s.trace)
	delete(r.flight, name)
	for range 14 {
		if _, err := r.step(name); err != nil {
			s.say("    %s", err)
			break
		}
		if r.flight[name] == nil {
			break
		}
	}
	for _, line := range s.trace[from:] {
		_, what, _ := strings.Cut(line, " ")
		s.say("  %s", what)
	}
	if len(s.trace) == from {
		s.say("  (nothing to do for %s)", name)
	}
	require.NoError(s.t, s.check())
	s.describe(name)
}

func (s *story) describe(name string) {
	c := s.state.claims[name]
	if c == nil {
		s.say("  %s is gone", name)
		return
	}
	for _, condition := range c.Status.Conditions {
		s.say("  %s: %s=%s %s: %s", name, condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	if c.Status.WaitingFor != "" {
		s.say("  %s: waits for %s, position %d", name, c.Status.WaitingFor, c.Status.QueuePosition)
	}
	if c.Status.EstimatedAssignmentTime != nil {
		s.say("  %s: probably served in %s", name, c.Status.EstimatedAssignmentTime.Sub(s.now))
	}
}

func (s *story) poolSays(conditionType, reason, message string, status metav1.ConditionStatus) {
	pool := s.pool.DeepCopy()
	hivev1.SetCondition(&pool.Status.Conditions, hivev1.Condition{Type: conditionType, Status: corev1.ConditionStatus(status), Reason: reason, Message: message}, metav1.NewTime(s.now))
	s.pool = pool
	s.record("pool says %s", reason)
	s.say("the pool says %s=%s %s", conditionType, status, reason)
}

func TestStoryFirstComeFirstServed(t *testing.T) {
	s := tell(t)
	s.claims("first")
	s.passes(time.Second)
	s.claims("second")
	s.looks("second")
	s.looks("first")
	s.passes(time.Minute)
	s.has("young", asleep)
	s.looks("second")
	s.looks("first")
	s.has("younger")
	s.looks("second")
	s.looks("second")
}

func TestStoryTheOldestClusterGoesFirst(t *testing.T) {
	s := tell(t)
	s.has("old-and-asleep", asleep)
	s.passes(time.Second)
	s.has("running")
	s.claims("a", func(c *hivev1.ClusterClaim) { c.Spec.Subjects = subjects() })
	s.looks("a")
}

func TestStoryRunningFirst(t *testing.T) {
	s := tell(t)
	s.pool.Spec.ClaimPolicy = hivev1.ClaimPolicyRunningFirst
	s.has("old-and-asleep", asleep)
	s.passes(time.Second)
	s.has("running")
	s.claims("a")
	s.looks("a")
	s.claims("b")
	s.looks("b")
}

func TestStoryAClaimExplainsItself(t *testing.T) {
	s := tell(t)
	s.has("sibling", func(cd *hivev1.ClusterDeployment) {
		cd.Status.InstalledTimestamp = new(metav1.NewTime(s.now.Add(10 * time.Minute)))
		cd.Spec.ClusterPoolRef.ClaimName, cd.Spec.ClusterPoolRef.ClaimUID = "other", "uid-of-other"
	})
	s.claims("a")
	s.looks("a")
	s.poolSays(hivev1.ClusterPoolMissingDependencies, hivev1.ReasonMissing, "pull secret: pull-secret not found", metav1.ConditionTrue)
	s.looks("a")
	s.poolSays(hivev1.ClusterPoolMissingDependencies, hivev1.ReasonVerified, "", metav1.ConditionFalse)
	s.has("new", installing)
	s.looks("a")
	s.claims("b")
	s.poolSays(hivev1.ClusterPoolCapacityAvailable, hivev1.ReasonMaxCapacity, "", metav1.ConditionFalse)
	s.looks("a")
	s.looks("b")
	s.poolSays(hivev1.ClusterPoolCapacityAvailable, hivev1.ReasonInventoryExhausted, "", metav1.ConditionFalse)
	s.looks("b")
	s.poolSays(hivev1.ClusterPoolCapacityAvailable, hivev1.ReasonAvailable, "", metav1.ConditionTrue)
	s.poolSays(hivev1.ClusterPoolProvisioningHealthy, hivev1.ReasonBackingOff, "3 clusters broke in a row: ProvisionStopped; the next is tried later", metav1.ConditionFalse)
	s.looks("a")
	s.poolSays(hivev1.ClusterPoolProvisioningHealthy, hivev1.ReasonHealthy, "", metav1.ConditionTrue)
	s.pool.Spec.MaxConcurrent = new(int32(0))
	s.record("frozen")
	s.say("the pool is frozen")
	s.looks("b")
	s.pool = nil
	s.record("pool gone")
	s.say("the pool is gone")
	s.looks("a")
}

func TestStoryAPlaceInTheQueueIsWrittenAtABoundedRate(t *testing.T) {
	s := tell(t)
	for _, name := range []string{"a", "b", "c"} {
		s.claims(name)
		s.passes(time.Second)
	}
	s.looks("c")
	s.deleteClaim("a", "deleted by its user")
	s.say("a is deleted")
	s.looks("c")
	s.passes(5 * time.Second)
	s.looks("c")
	s.passes(5 * time.Second)
	s.looks("c")
}

func TestStoryALostRace(t *testing.T) {
	s := tell(t)
	s.has("slow", installing)
	s.passes(time.Second)
	s.has("fast")
	s.claims("a")
	s.passes(time.Second)
	s.claims("b")
	s.b.sync()
	s.install("slow")
	s.say("slow is installed, which the second operator does not see")
	s.looks("b")
	s.say("the second operator looks at a")
	s.goesOn(s.b, "a")
	s.say("and again, with a newer view")
	s.b.sync()
	s.goesOn(s.b, "a")
}

func TestStoryACrashBetweenTheTwoWrites(t *testing.T) {
	s := tell(t)
	s.has("one")
	s.has("two")
	s.claims("a")
	s.a.crashAfter = 0
	s.looks("a")
	s.say("another operator, and another claim")
	s.claims("b")
	s.looks("b")
	s.looks("a")
}

func TestStoryRelease(t *testing.T) {
	s := tell(t)
	s.has("c1")
	s.claims("a", func(c *hivev1.ClusterClaim) { c.Spec.Subjects = subjects() })
	s.looks("a")
	s.deleteClaim("a", "deleted by its user")
	s.say("a is deleted")
	s.looks("a")
	s.deprovision()
	s.say("the cluster is gone")
	s.looks("a")
}

func TestStoryReleaseWithinABudget(t *testing.T) {
	s := tell(t)
	s.pool.Spec.MaxConcurrent = new(int32(1))
	s.has("c1")
	s.claims("a")
	s.looks("a")
	s.deleteClaim("a", "deleted by its user")
	s.say("a is deleted")
	s.looks("a")
	s.looks("a")
	s.deprovision()
	s.looks("a")
	s.deprovision()
	s.looks("a")
}

func TestStoryAClaimOfTheSameNameInheritsNothing(t *testing.T) {
	s := tell(t)
	s.has("c1")
	s.claims("a", func(c *hivev1.ClusterClaim) { c.Spec.Subjects = subjects() })
	s.looks("a")
	delete(s.state.claims, "a")
	s.record("claim a torn out")
	s.say("a is torn out, finalizer and all")
	s.claims("a", func(c *hivev1.ClusterClaim) { c.Spec.Subjects = []rbacv1.Subject{{Kind: "User", Name: "eve"}} })
	s.looks("a")
	s.deprovision()
	s.has("c2")
	s.looks("a")
}

func TestStoryLifetime(t *testing.T) {
	s := tell(t)
	s.pool.Spec.ClaimLifetime = &hivev1.ClusterPoolClaimLifetime{Maximum: &metav1.Duration{Duration: time.Hour}}
	s.claims("a", func(c *hivev1.ClusterClaim) { c.Spec.Lifetime = &metav1.Duration{Duration: 8 * time.Hour} })
	s.passes(2 * time.Hour)
	s.looks("a")
	s.has("c1")
	s.looks("a")
	s.passes(59 * time.Minute)
	s.looks("a")
	s.passes(time.Minute)
	s.looks("a")
	s.looks("a")
}

func TestStoryQueueTimeout(t *testing.T) {
	s := tell(t)
	s.claims("a", func(c *hivev1.ClusterClaim) { c.Spec.QueueTimeout = &metav1.Duration{Duration: time.Minute} })
	s.looks("a")
	s.passes(time.Minute)
	s.looks("a")
	s.has("c1")
	s.looks("a")
	s.claims("b")
	s.looks("b")
}

func TestStoryAPresetNamespace(t *testing.T) {
	s := tell(t)
	s.has("c1")
	s.passes(time.Second)
	s.has("c2")
	s.claims("a")
	s.passes(time.Second)
	s.claims("b", func(c *hivev1.ClusterClaim) { c.Spec.Namespace = "c1" })
	s.claims("c", func(c *hivev1.ClusterClaim) { c.Spec.Namespace = "c2" })
	s.say("b and c name clusters themselves")
	s.looks("c")
	s.looks("b")
	s.looks("a")
}

func TestStoryTheClusterOfAClaimIsDeleted(t *testing.T) {
	s := tell(t)
	s.has("c1")
	s.has("c2")
	s.claims("a")
	s.looks("a")
	_, _ = s.changeCluster("c1", "", "", "deleted by a user", func(cd *hivev1.ClusterDeployment) { cd.DeletionTimestamp = new(metav1.NewTime(s.now)) })
	s.say("c1 is being deleted")
	s.looks("a")
	s.deprovision()
	s.looks("a")
	s.looks("a")
}
