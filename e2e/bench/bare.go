// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Bare is a workload's writes without the operator: issued by a plain client, as fast as the API server takes them.
type Bare struct {
	// Writers is how many write at a time.
	Writers int
	// Items is how many objects of each kind the writes are spread over: one writer does all that is to be done about one item, in order.
	Items int
	// Writes are how many writes there are of each kind.
	Writes map[Kind]int
	// Order are the kinds in the order in which they are done to an item. Kinds that it lacks are an error.
	Order []Kind
	// Write does the n-th write of a kind to an item; n counts within the item.
	Write func(ctx context.Context, kind Kind, item, n int) error
}

// Run does the writes and returns how long they took.
func (b Bare) Run(ctx context.Context) (time.Duration, error) {
	for kind := range b.Writes {
		if !slices.Contains(b.Order, kind) {
			return 0, fmt.Errorf("there is no bare write for %s %s", kind.Verb, kind.Resource)
		}
	}
	var (
		next atomic.Int64
		mu   sync.Mutex
		errs []error
		wait sync.WaitGroup
	)
	started := time.Now()
	for range b.Writers {
		wait.Go(func() {
			for item := int(next.Add(1)) - 1; item < b.Items && ctx.Err() == nil; item = int(next.Add(1)) - 1 {
				if err := b.item(ctx, item); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wait.Wait()
	return time.Since(started), errors.Join(append(errs, ctx.Err())...)
}

// item does what is to be done about one item: its share of the writes of each kind.
func (b Bare) item(ctx context.Context, item int) error {
	for _, kind := range b.Order {
		count := b.Writes[kind]
		for n := range (item+1)*count/b.Items - item*count/b.Items {
			if err := b.Write(ctx, kind, item, n); err != nil {
				return fmt.Errorf("bare: %s %s: %w", kind.Verb, kind.Resource, err)
			}
		}
	}
	return nil
}

// RatioToBare runs the bare writes, checks at their own transport that they were the same in number and kind, and records the ratio.
func (r *Run) RatioToBare(ctx context.Context, workload time.Duration, b Bare, counter *Counter, target Target) error {
	before := counter.Requests()
	took, err := b.Run(ctx)
	if err != nil {
		return err
	}
	if done := counter.Requests().Since(before).Writes(); !maps.Equal(done, b.Writes) {
		return fmt.Errorf("the bare writes were others: %s instead of %s", Describe(done), Describe(b.Writes))
	}
	r.Figure("seconds", workload.Seconds(), "s", NoTarget)
	r.Figure("bare_seconds", took.Seconds(), "s", NoTarget)
	r.Figure("ratio_to_bare", workload.Seconds()/took.Seconds(), "ratio", target)
	r.Note("bare: %d writers, no operator running: %s", b.Writers, Describe(b.Writes))
	return nil
}
