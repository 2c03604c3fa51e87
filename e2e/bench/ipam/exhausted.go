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

// exhausted lets claims wait for addresses that the pool gets, and then for addresses that others give back.
func exhausted(ctx context.Context, r *bench.Run) error {
	w, err := newWorld(ctx, r)
	if err != nil {
		return err
	}
	const size, surplus = 200, 50
	pool, err := w.pool(ctx, "p", span("10.0.0.1", "10.0.0.200"))
	if err != nil {
		return err
	}
	claims, err := w.claim(ctx, "claim", pool.Name, size+surplus)
	if err != nil {
		return err
	}
	waiting, err := w.untilExhausted(ctx, claims, surplus)
	if err != nil {
		return err
	}
	writes, err := w.whileWaiting(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	grow := []byte(`{"spec":{"pools":[{"start":"10.0.0.1","end":"10.0.0.250"}]}}`)
	if err := w.user.Patch(ctx, pool, client.RawPatch(types.MergePatchType, grow)); err != nil {
		return fmt.Errorf("growing the pool: %w", err)
	}
	if err := w.untilServed(ctx, waiting); err != nil {
		return err
	}
	grown := w.waited(waiting, began)

	late, err := w.claim(ctx, "late", pool.Name, surplus)
	if err != nil {
		return err
	}
	if _, err := w.untilExhausted(ctx, late, surplus); err != nil {
		return err
	}
	more, err := w.whileWaiting(ctx)
	if err != nil {
		return err
	}
	victims := w.someServed(claims, surplus)
	began = time.Now()
	err = inParallel(len(victims), surplus, func(i int) error {
		return w.user.Delete(ctx, newClaim(victims[i], pool.Name))
	})
	if err != nil {
		return fmt.Errorf("deleting claims: %w", err)
	}
	if err := w.untilServed(ctx, late); err != nil {
		return err
	}
	released := w.waited(late, began)
	if _, err := w.Settled(ctx, quiet, patience); err != nil {
		return err
	}
	if err := w.verifyServed(ctx, size+surplus); err != nil {
		return err
	}
	for what, waited := range map[string][]time.Duration{"the pool grew": grown, "others were released": released} {
		w.Note("from the moment that %s: p50 %s, p99 %s", what, bench.Percentile(waited, 0.5).Round(time.Millisecond), bench.Percentile(waited, 0.99).Round(time.Millisecond))
	}
	if bench.Percentile(grown, 0.99) > bench.Percentile(released, 0.99) {
		released = grown
	}
	w.Latencies(released, 1000)
	w.Figure("writes_while_waiting", float64(writes+more), "writes", 0)
	return w.usage()
}

// untilExhausted waits until all claims are served but n, and those are told why not, and the operator has nothing more to say.
func (w *world) untilExhausted(ctx context.Context, claims map[string]time.Time, n int) (map[string]time.Time, error) {
	waiting := map[string]time.Time{}
	err := w.Await(ctx, patience, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		clear(waiting)
		for name, sent := range claims {
			switch {
			case !w.served[name].IsZero():
			case !w.told[name]:
				return "claim " + name + " was not told why it waits"
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
func (w *world) whileWaiting(ctx context.Context) (int, error) {
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
func (w *world) someServed(claims map[string]time.Time, n int) []string {
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
