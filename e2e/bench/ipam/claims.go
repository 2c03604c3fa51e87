// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-io/muster/e2e/bench"
)

// forClaims says whether a write serves a claim; the status of a pool is written for many claims at once.
func forClaims(kind bench.Kind) bool {
	return kind.Resource != patchPool.Resource && kind.Resource != "ippools"
}

// claims10k claims 10,000 addresses of one pool.
func claims10k(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r)
	if err != nil {
		return err
	}
	n := w.Scaled(10_000)
	pool, err := w.pool(ctx, "p", network("10.0.0.0/16"))
	if err != nil {
		return err
	}
	before, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	patches, err := w.poolPatches(ctx)
	if err != nil {
		return err
	}
	started := time.Now()
	claims, err := w.claim(ctx, "claim", pool.Name, n)
	if err != nil {
		return err
	}
	created := time.Since(started)
	if err := w.untilServed(ctx, claims); err != nil {
		return err
	}
	took := time.Since(started)
	after, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	if err := w.verifyServed(ctx, n); err != nil {
		return err
	}
	done := after.Since(before)
	w.Figure("writes_per_op", float64(bench.Total(done.Writes(), forClaims))/float64(n), "writes", 2)
	w.Figure("pool_writes", float64(bench.Total(done.Writes(), func(k bench.Kind) bool { return !forClaims(k) })), "writes", bench.NoTarget)
	w.Figure("failed_writes", float64(done.FailedWrites()), "writes", bench.NoTarget)
	w.Latencies(w.waited(claims, started), bench.NoTarget)
	w.Note("the last claim was created after %.1f s", created.Seconds())
	w.NoteRequests(done)
	if err := w.FigureUsage(); err != nil {
		return err
	}
	bare, err := w.bareLike(ctx, pool, n, n)
	if err != nil {
		return err
	}
	return w.ratioToBare(ctx, took, patches, bench.Bare{
		Writers: clients, Items: n,
		Writes: bench.Sum(done.Writes(), map[bench.Kind]int{createClaim: n}),
		Order:  []bench.Kind{createClaim, createAddress, patchClaim, patchPool},
		Write:  func(ctx context.Context, kind bench.Kind, item, _ int) error { return bare.write(ctx, kind, item) },
	}, 1.25)
}

// ratioToBare runs the bare writes and records the ratio, and how large the patches of the pool's status were on average. Earlier are the patches before the workload.
func (w *testEnv) ratioToBare(ctx context.Context, took time.Duration, earlier bodies, b bench.Bare, target bench.Target) error {
	operators, err := w.poolPatches(ctx)
	if err != nil {
		return err
	}
	if err := w.RatioToBare(ctx, took, b, w.plainCount, target); err != nil {
		return err
	}
	all, err := w.poolPatches(ctx)
	if err != nil {
		return err
	}
	w.Figure("pool_patch_bytes", operators.since(earlier).mean(), "bytes", bench.NoTarget)
	w.Figure("bare_pool_patch_bytes", all.since(operators).mean(), "bytes", bench.NoTarget)
	return nil
}

// claimIdle claims addresses one at a time, of a pool that has given many.
func claimIdle(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r)
	if err != nil {
		return err
	}
	n, singles := w.Scaled(10_000), w.Scaled(1000)
	pool, err := w.pool(ctx, "p", network("10.0.0.0/16"))
	if err != nil {
		return err
	}
	claims, err := w.claim(ctx, "taken", pool.Name, n)
	if err != nil {
		return err
	}
	if err := w.untilServed(ctx, claims); err != nil {
		return err
	}
	before, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	waited := make([]time.Duration, singles)
	for i := range waited {
		if waited[i], err = w.single(ctx, fmt.Sprintf("single-%d", i), pool.Name); err != nil {
			return err
		}
	}
	after, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	if err := w.verifyServed(ctx, n+singles); err != nil {
		return err
	}
	w.Latencies(waited, bench.NoTarget)
	done := after.Since(before)
	w.Figure("writes_per_op", float64(bench.Total(done.Writes(), forClaims))/float64(singles), "writes", 2)
	w.NoteRequests(done)
	bare, err := w.bareLike(ctx, pool, n+singles, singles)
	if err != nil {
		return err
	}
	took := make([]time.Duration, singles)
	for i := range took {
		started := time.Now()
		for _, kind := range []bench.Kind{createClaim, createAddress, patchClaim} {
			if err := bare.write(ctx, kind, i); err != nil {
				return fmt.Errorf("bare: %s %s: %w", kind.Verb, kind.Resource, err)
			}
		}
		took[i] = time.Since(started)
	}
	p99, bareP99 := bench.Percentile(waited, 0.99), bench.Percentile(took, 0.99)
	w.Figure("bare_p99_ms", float64(bareP99.Microseconds())/1000, "ms", bench.NoTarget)
	w.Figure("ratio_to_bare", p99.Seconds()/bareP99.Seconds(), "ratio", 3)
	w.Note("%d claims one at a time, %d addresses taken; bare: the same three writes one after the other, p50 %s", singles, n,
		bench.Percentile(took, 0.5).Round(10*time.Microsecond))
	return nil
}

// single claims one address and returns how long it took, from before the creation was sent until a watch showed the address.
func (w *testEnv) single(ctx context.Context, name, pool string) (time.Duration, error) {
	seen := make(chan struct{})
	w.mu.Lock()
	w.expect[name] = seen
	w.mu.Unlock()
	sent := time.Now()
	if err := w.user.Create(ctx, newClaim(name, pool)); err != nil {
		return 0, fmt.Errorf("creating a claim: %w", err)
	}
	select {
	case <-seen:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(patience):
		return 0, fmt.Errorf("claim %s is not served", name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served[name].Sub(sent), nil
}
