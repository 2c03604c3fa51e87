// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostsync brings the hosts that are in memory up to date with the store, and says how far that can be trusted.
package hostsync

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/muster-io/muster/agent-service/internal/coalesce"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostcache"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

const (
	// pageSize is how many hosts one statement of a load reads at most.
	pageSize = 5000
	// batchSize is how many hosts one statement reads by their keys at most.
	batchSize = 500
)

// Sync reads hosts into the memory of an engine. All methods are safe for concurrent use.
type Sync struct {
	engine *transaction.Engine
	// disconnected is set while changes of other replicas are not known.
	disconnected *atomic.Bool
	// loading keeps the store from being loaded twice at a time.
	loading sync.Mutex
	// wanted counts why all hosts have to be read, and loaded is what it was when the last complete load began.
	wanted, loaded atomic.Int64
	// reads are those of the hosts of an InfraEnv, shared by machines that ask at the same time.
	reads coalesce.Group[string, struct{}]
}

// New returns a Sync that has loaded nothing. Nothing in memory is trusted while disconnected is set.
func New(engine *transaction.Engine, disconnected *atomic.Bool) *Sync {
	s := &Sync{engine: engine, disconnected: disconnected}
	s.wanted.Store(1)
	return s
}

// Invalidate makes all hosts be read again: changes of other replicas were missed.
func (s *Sync) Invalidate() {
	s.wanted.Add(1)
	s.engine.Hosts.MarkAllStale()
}

// Loaded is whether all hosts were read since changes were missed last.
func (s *Sync) Loaded() bool { return s.loaded.Load() == s.wanted.Load() }

// Complete is whether all hosts were read once.
func (s *Sync) Complete() bool { return s.loaded.Load() > 0 }

// Load reads all hosts unless they are loaded.
func (s *Sync) Load(ctx context.Context) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.Loaded() {
		return nil
	}
	wanted := s.wanted.Load()
	seen := map[domain.HostKey]bool{}
	if err := s.readPages(ctx, domain.HostFilter{}, func(key domain.HostKey) { seen[key] = true }); err != nil {
		return err
	}
	for _, key := range s.engine.Hosts.Keys() {
		if seen[key] {
			continue
		}
		// It was deleted where this replica was not notified, or made since it began to read.
		if _, err := s.Read(ctx, key); err != nil && domain.KindOf(err) != domain.NotFound {
			return err
		}
	}
	s.loaded.Store(wanted)
	s.engine.Feed.Publish(domain.Change{Kind: domain.EverythingChanged})
	return nil
}

// readPages reads the hosts of a filter.
func (s *Sync) readPages(ctx context.Context, filter domain.HostFilter, read func(domain.HostKey)) error {
	for offset := 0; ; {
		epoch := s.engine.Hosts.Epoch()
		filter.Page = domain.Page{Limit: pageSize, Offset: offset}
		var page domain.List[domain.Host]
		err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
			page, err = r.Hosts(ctx, domain.Scope{Principal: domain.Kubernetes}, filter)
			return err
		})
		if err != nil {
			return err
		}
		for i := range page.Items {
			s.keep(&page.Items[i], epoch)
			read(page.Items[i].HostKey)
		}
		if offset += len(page.Items); len(page.Items) == 0 || offset >= page.Total {
			return nil
		}
	}
}

// keep puts into memory what was read after an epoch. No poll is answered where that is there already.
func (s *Sync) keep(h *domain.Host, epoch int64) *hostcache.Entry {
	if e := s.engine.Hosts.Confirm(h, epoch); e != nil {
		return e
	}
	return s.engine.Hosts.Put(h, epoch)
}

// Entry finds a host in memory, or in the store where memory cannot be trusted.
func (s *Sync) Entry(ctx context.Context, key domain.HostKey) (*hostcache.Entry, error) {
	if e := s.engine.Hosts.Get(key); e != nil && !s.disconnected.Load() && !e.Stale() {
		return e, nil
	}
	return s.Read(ctx, key)
}

// Read brings a host in memory up to date with the store.
func (s *Sync) Read(ctx context.Context, key domain.HostKey) (*hostcache.Entry, error) {
	epoch := s.engine.Hosts.Epoch()
	var h *domain.Host
	err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		h, err = r.Host(ctx, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	if h == nil {
		s.engine.Hosts.Remove(key)
		return nil, domain.RefuseUnknown("Host", key.HostID)
	}
	return s.keep(h, epoch), nil
}

// ReadChanged reads the hosts that other replicas made or changed. After an error they are read with the next call.
func (s *Sync) ReadChanged(ctx context.Context) error {
	keys := s.engine.Hosts.ChangedElsewhere()
	for len(keys) > 0 {
		some := keys[:min(len(keys), batchSize)]
		epoch := s.engine.Hosts.Epoch()
		var found []domain.Host
		err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
			found, err = r.HostsByKey(ctx, some)
			return err
		})
		if err != nil {
			s.engine.Hosts.ReadLater(keys)
			return err
		}
		gone := map[domain.HostKey]bool{}
		for _, key := range some {
			gone[key] = true
		}
		for i := range found {
			delete(gone, found[i].HostKey)
			s.keep(&found[i], epoch)
		}
		for key := range gone {
			s.engine.Hosts.Remove(key)
		}
		keys = keys[len(some):]
	}
	return nil
}
