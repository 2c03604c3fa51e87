// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servicewatch enqueues what changes of the service concern, as watches of the API server do for objects.
package servicewatch

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
)

const (
	// again is how long to wait before everything is listed again, where that failed.
	again = 2 * time.Second
	// firstWait and lastWait bound how long a request waits that failed; in between the time doubles.
	firstWait = 100 * time.Millisecond
	lastWait  = 30 * time.Second
)

// Service notifies of changes.
type Service interface {
	Subscribe() *feed.Subscription
}

// Source enqueues what changes concern. It implements source.TypedSource.
type Source[R comparable] struct {
	Service Service
	// All lists everything that a controller looks after: at the start, and when changes may have been missed. Nil where the cache tells of everything.
	All func(ctx context.Context) ([]R, error)
	// Concerns says what a change concerns.
	Concerns func(ctx context.Context, change domain.Change) []R
	// First says that a request goes before others that wait. Nil where none does.
	First func(ctx context.Context, request R) bool
}

// Start implements source.TypedSource.
func (s Source[R]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[R]) error {
	subscription := s.Service.Subscribe()
	go func() {
		defer subscription.Close()
		s.everything(ctx, queue)
		for {
			changes, err := subscription.Next(ctx)
			if err != nil {
				return
			}
			for _, change := range changes {
				if change.Kind == domain.EverythingChanged {
					s.everything(ctx, queue)
					continue
				}
				s.enqueue(ctx, queue, s.Concerns(ctx, change))
			}
		}
	}()
	return nil
}

// enqueue adds requests, those that go first before others.
func (s Source[R]) enqueue(ctx context.Context, queue workqueue.TypedRateLimitingInterface[R], requests []R) {
	ordered, is := queue.(priorityqueue.PriorityQueue[R])
	for _, request := range requests {
		if is && s.First != nil && s.First(ctx, request) {
			ordered.AddWithOpts(priorityqueue.AddOpts{Priority: new(1)}, request)
		} else {
			queue.Add(request)
		}
	}
}

// everything tries until it is done or ctx ends.
func (s Source[R]) everything(ctx context.Context, queue workqueue.TypedRateLimitingInterface[R]) {
	if s.All == nil {
		return
	}
	for {
		requests, err := s.All(ctx)
		s.enqueue(ctx, queue, requests)
		if err == nil {
			return
		}
		logf.FromContext(ctx).Info("did not list everything, trying again", "error", err.Error())
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

// ComesAndGoes lets only pass that an object was made or deleted.
var ComesAndGoes = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}

// RateLimiter lets what failed wait, not so long that an API server that comes back is not noticed.
func RateLimiter[R comparable]() workqueue.TypedRateLimiter[R] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[R](firstWait, lastWait)
}
