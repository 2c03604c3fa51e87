// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/environment"
)

// standIn is pool-operator without hosted clusters: others install.
func standIn() environment.Operator {
	o := environment.PoolOperator()
	o.Args = func(string) []string { return []string{"--hosted-runtime=none"} }
	return o
}

// Benchmarks returns all benchmarks of pool-operator.
func Benchmarks() []bench.Benchmark {
	return []bench.Benchmark{
		{Name: "pool.fill_100", Operator: standIn(), Play: fill100},
		{Name: "pool.claims_50_beside_fill", Operator: standIn(), Play: claims50BesideFill},
		{Name: "pool.claims_beside_5_fills", Operator: standIn(), Play: claimsBesideFills},
		{Name: "pool.claim_churn", Operator: standIn(), Play: claimChurn},
		{Name: "pool.running_0_50_0", Operator: standIn(), Play: running0to50to0},
		{Name: "pool.steady_20x50", Operator: standIn(), Play: steady20x50},
		{Name: "pool.hosted_claim", Operator: environment.PoolOperator(), Play: hostedClaim},
		{Name: "pool.hosted_resume", Operator: environment.PoolOperator(), Play: hostedResume},
	}
}

// fill100 fills an empty pool with a stand-in installer that installs at once.
func fill100(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r, standInInstalls)
	if err != nil {
		return err
	}
	defer w.close()
	size := w.Scaled(100)
	pool := newPool(filledPool, size, 0)
	before, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	installing := w.counter.Requests()
	started := time.Now()
	if err := w.user.Create(ctx, pool); err != nil {
		return fmt.Errorf("creating the pool: %w", err)
	}
	if err := w.untilFilled(ctx, pool); err != nil {
		return err
	}
	took := time.Since(started)
	after, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	if err := w.verifyFill(ctx, pool.Name, size); err != nil {
		return err
	}
	done := after.Since(before)
	installed := w.counter.Requests().Since(installing).Writes()
	w.Figure("writes_per_op", float64(bench.Total(done.Writes(), nil))/float64(size), "writes", 3.1)
	w.Figure("failed_writes", float64(done.FailedWrites()), "writes", bench.NoTarget)
	w.NoteRequests(done)
	w.Note("stand-in installer, not counted above: %s", bench.Describe(installed))
	if err := w.FigureUsage(); err != nil {
		return err
	}
	w.StopOperator()
	w.close()
	return w.RatioToBare(ctx, took, w.bareFill(size, bench.Sum(done.Writes(), installed)), w.plainCount, 1.25)
}

// verifyFill checks that there are as many clusters as were asked for, each in a namespace of its own and under a name of its own.
func (w *testEnv) verifyFill(ctx context.Context, pool string, size int) error {
	clusters := w.clusters(ctx, pool)
	names := map[string]bool{}
	for i := range clusters {
		cd := &clusters[i]
		if !cd.Spec.Installed || cd.Name != cd.Namespace {
			return fmt.Errorf("cluster %s/%s is not as it should be", cd.Namespace, cd.Name)
		}
		names[cd.Spec.ClusterName] = true
	}
	if len(clusters) != size || len(names) != size {
		return fmt.Errorf("%d clusters under %d names, wanted %d", len(clusters), len(names), size)
	}
	w.Asserted("%d clusters, all installed, each with a namespace and a name of its own", size)
	return nil
}
