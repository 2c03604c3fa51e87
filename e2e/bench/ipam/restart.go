// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/environment"
)

// steadyFor is how long nothing may be written after a restart.
const steadyFor = 30 * time.Second

// fillPools serves 500 claims from each of n pools.
func (w *testEnv) fillPools(ctx context.Context, n int) (map[string]time.Time, error) {
	const each = 500
	pool := func(i int) string { return fmt.Sprintf("pool-%d", i) }
	err := inParallel(n, 10, func(i int) error {
		_, err := w.pool(ctx, pool(i), network(fmt.Sprintf("10.%d.0.0/16", i)))
		return err
	})
	if err != nil {
		return nil, err
	}
	claims := map[string]time.Time{}
	for i := range n {
		some, err := w.claim(ctx, fmt.Sprintf("claim-%d", i), pool(i), each)
		if err != nil {
			return nil, err
		}
		maps.Copy(claims, some)
	}
	if err := w.untilServed(ctx, claims); err != nil {
		return nil, err
	}
	_, err = w.Settled(ctx, quiet, patience)
	return claims, err
}

// restart50k restarts the operator on 50,000 addresses in 100 pools twice: without a new claim, where nothing may be written, and with one that is made at once.
func restart50k(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r)
	if err != nil {
		return err
	}
	claims, err := w.fillPools(ctx, w.Scaled(100))
	if err != nil {
		return err
	}
	took, err := w.restart(ctx)
	if err != nil {
		return err
	}
	w.Figure("seconds", took.Seconds(), "s", bench.NoTarget)
	if err := w.countIdleWrites(ctx); err != nil {
		return err
	}
	if err := w.FigureUsage(); err != nil {
		return err
	}
	took, err = w.restart(ctx)
	if err != nil {
		return err
	}
	first, err := w.single(ctx, "first", "pool-0")
	if err != nil {
		return err
	}
	w.Figure("seconds_to_first_address", (took + first).Seconds(), "s", bench.NoTarget)
	w.Note("the first claim after the second restart was served in %s", first.Round(time.Millisecond))
	done, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	w.Note("writes for that claim: %s", bench.Describe(done.Writes()))
	claims["first"] = time.Time{}
	return w.verifyServed(ctx, len(claims))
}

// restart kills the operator and returns how long the next one takes to be ready.
func (w *testEnv) restart(ctx context.Context) (time.Duration, error) {
	operator := environment.IPAMOperator()
	w.Local.KillOperator(operator.ID())
	started := time.Now()
	err := w.Local.StartOperator(ctx, operator)
	return time.Since(started), err
}

// countIdleWrites records what the operator writes from its start until it is idle, and for a while after that.
func (w *testEnv) countIdleWrites(ctx context.Context) error {
	err := w.Await(ctx, patience, func() string { // metrics are served a moment later than the operator is ready
		if _, err := w.Requests(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
	if err != nil {
		return err
	}
	start, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	w.Figure("writes_at_start", float64(bench.Total(start.Writes(), nil)), "writes", 0)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(steadyFor):
	}
	after, err := w.Requests(ctx)
	if err != nil {
		return err
	}
	idle := after.Since(start)
	w.Figure("writes_total", float64(bench.Total(idle.Writes(), nil)), "writes", 0)
	w.NoteRequests(start)
	w.Note("writes in the %s after that: %s", steadyFor, bench.Describe(idle.Writes()))
	return nil
}
