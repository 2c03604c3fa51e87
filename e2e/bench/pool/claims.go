// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

// claimed is a claim on its way.
type claimed struct {
	name    string
	created time.Time
}

// claimAtOnce creates claims on a pool at once, each by a writer of its own, and waits until all are served. It returns how long each waited: from
// before its creation was sent until a watch showed it served.
func (w *testEnv) claimAtOnce(ctx context.Context, pool, prefix string, n int) ([]time.Duration, error) {
	claims := make([]claimed, n)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range claims {
		wait.Go(func() {
			claims[i] = claimed{name: fmt.Sprintf("%s-%03d", prefix, i), created: time.Now()}
			errs[i] = w.user.Create(ctx, newClaim(claims[i].name, pool))
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("creating claims: %w", err)
	}
	if err := w.untilServed(ctx, claims); err != nil {
		return nil, err
	}
	waited := make([]time.Duration, n)
	for i, c := range claims {
		waited[i] = w.servedAt(c.name).Sub(c.created)
	}
	return waited, nil
}

func (w *testEnv) untilServed(ctx context.Context, claims []claimed) error {
	return w.Await(ctx, patience, func() string {
		for _, c := range claims {
			if w.servedAt(c.name).IsZero() {
				return "claim " + c.name + " waits"
			}
		}
		return ""
	})
}

func (w *testEnv) servedAt(claim string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served[claim]
}

// verifyClaims checks, as the API server has it, that each claim has a cluster of its own that says so, and that its subject has rights there.
func (w *testEnv) verifyClaims(ctx context.Context, want int) error {
	claims, clusters := &hivev1.ClusterClaimList{}, &hivev1.ClusterDeploymentList{}
	if err := errors.Join(w.user.List(ctx, claims, client.InNamespace(namespace)), w.user.List(ctx, clusters)); err != nil {
		return err
	}
	byName := map[string]*hivev1.ClusterDeployment{}
	for i := range clusters.Items {
		byName[clusters.Items[i].Name] = &clusters.Items[i]
	}
	owner := map[string]string{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		cd := byName[claim.Spec.Namespace]
		if !isServed(claim) || cd == nil {
			return fmt.Errorf("claim %s has no cluster", claim.Name)
		}
		if ref := cd.Spec.ClusterPoolRef; ref.ClaimUID != claim.UID || ref.PoolName != claim.Spec.ClusterPoolName {
			return fmt.Errorf("cluster %s of claim %s is that of claim %s", cd.Name, claim.Name, ref.ClaimName)
		}
		if other, taken := owner[cd.Name]; taken {
			return fmt.Errorf("cluster %s has the claims %s and %s", cd.Name, claim.Name, other)
		}
		owner[cd.Name] = claim.Name
		if err := w.user.Get(ctx, client.ObjectKey{Namespace: cd.Name, Name: hivev1.ClaimOwnerRoleName}, &rbacv1.RoleBinding{}); err != nil {
			return fmt.Errorf("the subject of claim %s: %w", claim.Name, err)
		}
	}
	if len(owner) != want {
		return fmt.Errorf("%d claims are served, wanted %d", len(owner), want)
	}
	w.Asserted("%d claims served, each with a cluster of its own that records it, running, and its subject bound there", want)
	return nil
}

// forClaims says whether a write serves claims: it is about a claim, or changes a cluster that there is. Rights and replacement are apart.
func forClaims(kind bench.Kind) bool {
	switch kind.Resource {
	case "clusterclaims", "clusterclaims/status", "clusterdeployments/status":
		return true
	case "clusterdeployments":
		return kind.Verb == "patch" || kind.Verb == "update" || kind.Verb == "apply"
	}
	return false
}

func forRights(kind bench.Kind) bool {
	return kind.Resource == "roles" || kind.Resource == "rolebindings"
}

// claims50BesideFill claims all clusters of a pool at once while another one fills.
func claims50BesideFill(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r, standInInstalls)
	if err != nil {
		return err
	}
	defer w.close()
	n := w.Scaled(50)
	ready, filling := newPool("ready", n, n), newPool("filling", w.Scaled(100), 0)
	before, err := w.fill(ctx, ready)
	if err != nil {
		return err
	}
	if err := w.begin(ctx, filling); err != nil {
		return err
	}
	profiled, err := w.Profile(ctx, w.Local.Pid("pool-operator"))
	if err != nil {
		return err
	}
	installing := w.counter.Requests()
	waited, err := w.claimAtOnce(ctx, ready.Name, "claim", n)
	profiled()
	if err != nil {
		return err
	}
	installed, _ := w.count(ctx, filling.Name)
	w.Note("when the last claim was served, %d of %d clusters of the other pool were installed; the stand-in installer wrote meanwhile: %s", installed, filling.Spec.Size,
		bench.Describe(w.counter.Requests().Since(installing).Writes()))
	if err := w.untilFilled(ctx, ready, filling); err != nil {
		return err
	}
	after, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	if err := w.verifyClaims(ctx, n); err != nil {
		return err
	}
	done := after.Since(before)
	w.Latencies(waited, 1000)
	w.Figure("writes_per_op", float64(bench.Total(done.Writes(), forClaims))/float64(n), "writes", 3)
	w.Figure("rbac_writes_per_op", float64(bench.Total(done.Writes(), forRights))/float64(n), "writes", bench.NoTarget)
	w.Figure("failed_writes", float64(done.FailedWrites()), "writes", bench.NoTarget)
	w.NoteRequests(done)
	if err := w.FigureUsage(); err != nil {
		return err
	}
	return w.latenciesBesideBare(ctx, ready.Name, waited)
}

// begin creates pools and waits until each has begun to fill.
func (w *testEnv) begin(ctx context.Context, pools ...*hivev1.ClusterPool) error {
	for _, pool := range pools {
		if err := w.user.Create(ctx, pool); err != nil {
			return fmt.Errorf("creating a pool: %w", err)
		}
	}
	return w.Await(ctx, patience, func() string {
		for _, pool := range pools {
			if len(w.clusters(ctx, pool.Name)) == 0 {
				return "pool " + pool.Name + " does not begin to fill"
			}
		}
		return ""
	})
}

// claimsBesideFills claims the clusters of a small pool while five, then twenty others fill.
func claimsBesideFills(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r, standInInstalls)
	if err != nil {
		return err
	}
	defer w.close()
	const n = 10
	var worst []time.Duration
	for _, others := range []int{w.Scaled(5), w.Scaled(20)} {
		ready := newPool(fmt.Sprintf("ready-%d", others), n, n)
		if _, err := w.fill(ctx, ready); err != nil {
			return err
		}
		var filling []*hivev1.ClusterPool
		for i := range others {
			filling = append(filling, newPool(fmt.Sprintf("filling-%d-of-%d", i, others), 100, 0))
		}
		if err := w.begin(ctx, filling...); err != nil {
			return err
		}
		waited, err := w.claimAtOnce(ctx, ready.Name, fmt.Sprintf("claim-%d", others), n)
		if err != nil {
			return err
		}
		installed := 0
		for _, pool := range filling {
			some, _ := w.count(ctx, pool.Name)
			installed += some
		}
		p99 := bench.Percentile(waited, 0.99)
		w.Note("beside %d fills: p50 %s, p99 %s; %d of %d clusters of the others were installed then", others,
			bench.Percentile(waited, 0.5).Round(time.Millisecond), p99.Round(time.Millisecond), installed, others*100)
		if p99 > bench.Percentile(worst, 0.99) {
			worst = waited
		}
		if err := w.untilFilled(ctx, append(filling, ready)...); err != nil {
			return err
		}
	}
	if err := w.verifyClaims(ctx, 2*n); err != nil {
		return err
	}
	w.Latencies(worst, 1000)
	return w.FigureUsage()
}
