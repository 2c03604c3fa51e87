// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/muster-io/muster/agent-service/internal/clusterqueue"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
	"github.com/muster-io/muster/agent-service/internal/hostcache"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
)

// Engine runs transactions, and brings memory up to date with them.
type Engine struct {
	Store     Store
	Memory    Memory
	Hosts     *hostcache.Cache
	Clock     *hostcache.UpClock
	InfraEnvs *hostcache.Recent[domain.InfraEnv]
	Clusters  *hostcache.Recent[domain.Cluster]
	Feed      feed.Feed
	// Reviews are of clusters, one within each PollInterval.
	Reviews      hostcache.Reviews
	PollInterval time.Duration
	Rules        func() *hostplan.Rules
	Now          func() time.Time
	// Noted is called with the result of each transaction, and returns it.
	Noted func(err error) error

	queues clusterqueue.Queues
}

// View runs a transaction that only reads. Its results may be shared with memory: copy what you change.
func (e *Engine) View(ctx context.Context, do func(context.Context, Reader) error) error {
	return e.Noted(e.Store.View(ctx, func(ctx context.Context, r Reader) error {
		r.Recall(e.Memory)
		return do(ctx, r)
	}))
}

// ErrOutdated makes Update run the transaction again: another one changed what it had read without a lock.
var ErrOutdated = errors.New("another transaction changed what was read")

// Update runs a transaction and, after it, shows what it changed to polls that wait. The clusters that it changes are named as far as they are known; where it finds out
// that there are others, it runs again with those locked, too.
func (e *Engine) Update(ctx context.Context, do func(ctx context.Context, w *Work) error, clusters ...string) error {
	for {
		err := e.inTurn(ctx, clusters, func() error {
			return e.Store.Update(ctx, func(ctx context.Context, tx Tx) error { return e.transact(ctx, tx, clusters, do) })
		})
		if errors.Is(err, ErrOutdated) {
			continue
		}
		missing, is := errors.AsType[*errNotLocked](err)
		if !is {
			return e.Noted(err)
		}
		clusters = append(slices.Clone(clusters), missing.clusterID)
	}
}

// inTurn waits for the turn at clusters where the store does not let its transactions wait for theirs.
func (e *Engine) inTurn(ctx context.Context, clusters []string, do func() error) error {
	if !e.Store.Shared() {
		return do()
	}
	leave, err := e.queues.Enter(ctx, clusters)
	if err != nil {
		return err
	}
	defer leave()
	return do()
}

func (e *Engine) transact(ctx context.Context, tx Tx, clusters []string, do func(ctx context.Context, w *Work) error) error {
	tx.Recall(e.Memory)
	w := e.newWork(tx, clusters)
	if err := tx.LockClusters(ctx, clusters...); err != nil {
		return err
	}
	if err := do(ctx, w); err != nil {
		return err
	}
	tx.AfterCommit(w.show)
	return w.flush(ctx)
}

// NewStamp is one that no token carries yet.
func NewStamp() string { return rand.Text()[:16] }
