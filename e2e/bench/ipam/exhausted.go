// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/e2e/bench"
)

// whileWaiting is how long nothing may be written while claims wait.
const whileWaiting = 5 * time.Second

// Figures of exhausted: so many claims of a pool of this size wait.
const (
	exhaustedSize    = 200
	exhaustedSurplus = 50
)

// exhausted lets claims wait for addresses that the pool gets, and then for addresses that others give back.
func exhausted(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r)
	if err != nil {
		return err
	}
	pool, err := w.pool(ctx, "p", span("10.0.0.1", "10.0.0.200"))
	if err != nil {
		return err
	}
	claims, err := w.claim(ctx, "claim", pool.Name, exhaustedSize+exhaustedSurplus)
	if err != nil {
		return err
	}
	grown, writes, err := w.servedAfter(ctx, claims, "the pool grew", func() error {
		grow := []byte(`{"spec":{"pools":[{"start":"10.0.0.1","end":"10.0.0.250"}]}}`)
		return w.user.Patch(ctx, pool, client.RawPatch(types.MergePatchType, grow))
	})
	if err != nil {
		return err
	}
	late, err := w.claim(ctx, "late", pool.Name, exhaustedSurplus)
	if err != nil {
		return err
	}
	victims := w.someServed(claims, exhaustedSurplus)
	released, more, err := w.servedAfter(ctx, late, "others were released", func() error {
		return inParallel(len(victims), exhaustedSurplus, func(i int) error { return w.user.Delete(ctx, newClaim(victims[i], pool.Name)) })
	})
	if err != nil {
		return err
	}
	if _, err := w.Settled(ctx, quiet, patience); err != nil {
		return err
	}
	if err := w.verifyServed(ctx, exhaustedSize+exhaustedSurplus); err != nil {
		return err
	}
	if bench.Percentile(grown, 0.99) > bench.Percentile(released, 0.99) {
		released = grown
	}
	w.Latencies(released, 1000)
	w.Figure("writes_while_waiting", float64(writes+more), "writes", 0)
	return w.FigureUsage()
}

// servedAfter lets 50 of the claims wait, gives capacity and returns how long each of them waited from then on, and what was written before.
func (w *testEnv) servedAfter(ctx context.Context, claims map[string]time.Time, what string, give func() error) ([]time.Duration, int, error) {
	waiting, err := w.untilExhausted(ctx, claims, exhaustedSurplus)
	if err != nil {
		return nil, 0, err
	}
	writes, err := w.whileWaiting(ctx)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	if err := give(); err != nil {
		return nil, 0, fmt.Errorf("giving capacity: %w", err)
	}
	if err := w.untilServed(ctx, waiting); err != nil {
		return nil, 0, err
	}
	waited := w.waited(waiting, began)
	w.Note("from the moment that %s: p50 %s, p99 %s", what, bench.Percentile(waited, 0.5).Round(time.Millisecond), bench.Percentile(waited, 0.99).Round(time.Millisecond))
	return waited, writes, nil
}

// untilExhausted waits until all claims are served but n, their conditions say why, and the operator has no more writes.
func (w *testEnv) untilExhausted(ctx context.Context, claims map[string]time.Time, n int) (map[string]time.Time, error) {
	waiting := map[string]time.Time{}
	err := w.Await(ctx, patience, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		clear(waiting)
		for name, sent := range claims {
			switch {
			case !w.served[name].IsZero():
			case !w.explained[name]:
				return "claim " + name + " has no reason why it waits"
			default:
				waiting[name] = sent
			}
		}
		if len(waiting) != n {
			return fmt.Sprintf("%d claims wait, wanted %d", len(waiting), n)
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	_, err = w.Settled(ctx, quiet, patience)
	return waiting, err
}

// whileWaiting counts what the operator writes while nothing happens.
func (w *testEnv) whileWaiting(ctx context.Context) (int, error) {
	before, err := w.Requests(ctx)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(whileWaiting):
	}
	after, err := w.Requests(ctx)
	return bench.Total(after.Since(before).Writes(), nil), err
}

// someServed are the names of n claims that have an address.
func (w *testEnv) someServed(claims map[string]time.Time, n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for name := range claims {
		if !w.served[name].IsZero() {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, strings.Compare)
	return names[:n]
}
