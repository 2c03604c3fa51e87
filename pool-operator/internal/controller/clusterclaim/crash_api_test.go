// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// TestADeathAtEveryWrite kills the operator after each of its writes while claims are bound and given back; another replica then finishes
// the story. Clusters take machines in every second one.
func TestADeathAtEveryWrite(t *testing.T) {
	machines := true
	faultinject.CrashAfterEveryCall(t, func(t *testing.T, i *faultinject.Injector) {
		machines = !machines
		bindAndDie(t, i, machines)
	})
}

func bindAndDie(t *testing.T, i *faultinject.Injector, machines bool) {
	s := newSuite(t)
	var change []func(*hivev1.ClusterPool)
	if machines {
		change = append(change, func(p *hivev1.ClusterPool) { p.Spec.MaxConcurrent = new(int32(5)) }, takesMachines)
	}
	s.pool("p", change...)
	for range 3 {
		s.cluster("p")
	}
	s.claim("a", "p")
	r := s.startWith(i)
	s.claim("b", "p")
	bound := func(name string) bool {
		c := hivev1.FindCondition(s.get(name).Status.Conditions, hivev1.ClusterClaimPending)
		return c != nil && c.Reason == hivev1.ReasonClusterClaimed
	}
	require.True(t, s.eventually(func() bool { return i.Crashed() || bound("a") && bound("b") }))
	require.NoError(t, s.client.Delete(t.Context(), s.get("a")))
	absent := func(name string) bool {
		return apierrors.IsNotFound(s.client.Get(t.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, &hivev1.ClusterClaim{}))
	}
	marked := func() bool {
		for _, cd := range s.clusters() {
			if cd.Annotations[hivev1.AnnotationRemoveFromPool] == "true" {
				return true
			}
		}
		return false
	}
	require.True(t, s.eventually(func() bool { return i.Crashed() || absent("a") || marked() }))
	r.stop()
	s.start()
	require.True(t, s.eventually(func() bool {
		s.deleteMarked()
		return absent("a") && bound("b")
	}), "no replica finishes what was begun")
	require.Equal(t, 1, s.requirePairs())
	s.requireNoForeignRights()
	s.requireMachineRights("b", machines)
}

// takesMachines has a pool's clusters take nodes; the subjects of a claim scale the MachinePools of their cluster.
func takesMachines(p *hivev1.ClusterPool) {
	p.Spec.Platform.Hosted.Nodes = &hivev1.HostedNodes{}
	p.Spec.MachinePools = []hivev1.ClusterPoolMachinePool{{Name: "worker", Replicas: 1, Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}}}}
}

// requireMachineRights asserts that the subjects of a claim can scale MachinePools of their cluster where its pool has some, and can make none.
func (s *suite) requireMachineRights(claim string, some bool) {
	s.t.Helper()
	role := &rbacv1.Role{}
	key := types.NamespacedName{Namespace: s.get(claim).Spec.Namespace, Name: hivev1.ClaimOwnerRoleName}
	require.True(s.t, s.eventually(func() bool { return s.client.Get(s.t.Context(), key, role) == nil }), "claim %s has no rights", claim)
	verbs := map[string]bool{}
	for _, rule := range role.Rules {
		if slices.Contains(rule.Resources, "machinepools") {
			for _, verb := range rule.Verbs {
				verbs[verb] = true
			}
		}
	}
	require.Equal(s.t, some, verbs["patch"], "%+v", role.Rules)
	require.False(s.t, verbs["create"], "%+v", role.Rules)
}

// TestADeathOfOneOfTwoReplicas runs two replicas that share the work and kills one of them at its n-th write, for eight n; then once more while another client
// annotates claims and clusters all the time.
func TestADeathOfOneOfTwoReplicas(t *testing.T) {
	for n := 1; n <= 16; n++ {
		annotated := n > 8
		t.Run(fmt.Sprintf("write %d, annotated %v", n, annotated), func(t *testing.T) {
			s := newSuite(t)
			s.pool("p")
			if annotated {
				s.annotator()
			}
			n := (n-1)%8 + 1
			s.startWith(faultinject.At(n, n%2 == 0))
			survivor := s.start()
			for i, name := range claimNames(6) {
				s.cluster("p")
				s.claim(name, "p")
				if i%3 == 2 {
					require.NoError(t, s.client.Delete(t.Context(), s.get(name)))
				}
			}
			require.True(t, s.eventually(func() bool {
				s.deleteMarked()
				s.endGrace(survivor)
				pairs, err := s.pairs()
				return err == nil && pairs == 4 && s.claimCount() == 4
			}), "no replica finishes what was begun")
			for i, name := range claimNames(6) {
				if i%3 != 2 {
					s.waitFor(name, hivev1.ClusterClaimPending, hivev1.ReasonClusterClaimed)
				}
			}
			s.requireNoForeignRights()
		})
	}
}

// annotator changes all claims and clusters of the suite again and again until the test ends, and nothing that a decision is made from.
func (s *suite) annotator() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		ticker := time.NewTicker(25 * time.Millisecond)
		defer ticker.Stop()
		for round := 0; ; round++ {
			patch := mergePatchOf(fmt.Sprintf(`{"metadata":{"annotations":{"other.example.com/was-here":"%d"}}}`, round))
			var claims hivev1.ClusterClaimList
			_ = s.client.List(ctx, &claims, client.InNamespace(s.namespace))
			for i := range claims.Items {
				s.touch(ctx, &claims.Items[i], patch)
			}
			var clusters hivev1.ClusterDeploymentList
			_ = s.client.List(ctx, &clusters)
			for i := range clusters.Items {
				if ref := clusters.Items[i].Spec.ClusterPoolRef; ref != nil && ref.Namespace == s.namespace {
					s.touch(ctx, &clusters.Items[i], patch)
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
}

func (s *suite) touch(ctx context.Context, object client.Object, patch client.Patch) {
	if err := s.client.Patch(ctx, object, patch); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		s.t.Errorf("annotating %s: %v", object.GetName(), err)
	}
}

func (s *suite) claimCount() int {
	s.t.Helper()
	var claims hivev1.ClusterClaimList
	require.NoError(s.t, s.client.List(s.t.Context(), &claims, client.InNamespace(s.namespace)))
	return len(claims.Items)
}

// deleteMarked is what a pool with a budget does.
func (s *suite) deleteMarked() {
	for _, cd := range s.clusters() {
		if cd.Annotations[hivev1.AnnotationRemoveFromPool] == "true" {
			_ = s.client.Delete(s.t.Context(), &cd)
		}
	}
}

// endGrace ends the time for which a replica keeps clusters whose claim is gone. The other one may have died just after it had recorded a claim that was gone by then: only a
// process that lives knows that the claim's finalizer was not removed by hand.
func (s *suite) endGrace(r *replica) {
	for _, cd := range s.clusters() {
		c := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentClaimMissing)
		if c == nil {
			continue
		}
		if ends := c.LastTransitionTime.Add(claimplan.OrphanGrace + time.Second); r.clock.Now().Before(ends) {
			r.clock.advance(ends.Sub(r.clock.Now()))
			wake := mergePatchOf(fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, hivev1.AnnotationPowerStatePause)) // a real timer would have fired
			require.NoError(s.t, client.IgnoreNotFound(s.client.Patch(s.t.Context(), &cd, wake)))
		}
	}
}

// requireNoForeignRights asserts that rights exist in the namespace of a claimed cluster only, for that claim's subjects.
func (s *suite) requireNoForeignRights() {
	s.t.Helper()
	require.True(s.t, s.eventually(func() bool {
		owners := map[string]string{}
		for _, cd := range s.clusters() {
			owners[cd.Namespace] = cd.Spec.ClusterPoolRef.ClaimName
		}
		var bindings rbacv1.RoleBindingList
		require.NoError(s.t, s.client.List(s.t.Context(), &bindings))
		for i := range bindings.Items {
			b := &bindings.Items[i]
			owner, mine := owners[b.Namespace]
			if b.Name == hivev1.ClaimOwnerRoleName && mine && (owner == "" || b.Subjects[0].Name != "user-of-"+owner) {
				return false
			}
		}
		return true
	}))
}
