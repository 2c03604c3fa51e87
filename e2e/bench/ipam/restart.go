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
func (w *world) fillPools(ctx context.Context, n int) (map[string]time.Time, error) {
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

// restart50k restarts the operator on 50,000 addresses in 100 pools.
func restart50k(ctx context.Context, r *bench.Run) error {
	w, err := newWorld(ctx, r)
	if err != nil {
		return err
	}
	claims, err := w.fillPools(ctx, w.Scaled(100))
	if err != nil {
		return err
	}
	operator := environment.IPAMOperator()
	w.Local.KillOperator(operator.ID())
	started := time.Now()
	if err := w.Local.StartOperator(ctx, operator); err != nil {
		return err
	}
	w.Figure("seconds", time.Since(started).Seconds(), "s", bench.NoTarget)
	first, err := w.single(ctx, "first", "pool-0")
	if err != nil {
		return err
	}
	w.Figure("seconds_to_first_address", time.Since(started).Seconds(), "s", bench.NoTarget)
	w.Note("the first claim after the restart was served in %s", first.Round(time.Millisecond))
	if _, err := w.Settled(ctx, quiet, patience); err != nil {
		return err
	}
	before, err := w.Requests(ctx)
	if err != nil {
		return err
	}
	// One claim: address, status, and the status of its pool. Everything else is as it was.
	w.Figure("writes_at_start", float64(bench.Total(before.Writes(), nil)-3), "writes", 0)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(steadyFor):
	}
	after, err := w.Requests(ctx)
	if err != nil {
		return err
	}
	w.Figure("writes_total", float64(bench.Total(after.Since(before).Writes(), nil)), "writes", 0)
	w.describe(before)
	if err := w.usage(); err != nil {
		return err
	}
	claims["first"] = time.Time{}
	return w.verifyServed(ctx, len(claims))
}
