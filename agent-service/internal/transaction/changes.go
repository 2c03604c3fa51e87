// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
)

// changes are what a transaction read and is about to write: each object is remembered as it was read, and written at the end if it differs.
type changes struct {
	Tx
	hostplan.Plan
	e        *Engine
	epoch    int64 // of the cache of hosts when it began
	hosts    map[domain.HostKey]*tracked[domain.Host]
	clusters map[string]*tracked[domain.Cluster]
	// locked are the clusters that this transaction may change.
	locked    []string
	announced map[domain.Change]struct{}
	// reviewed are the clusters all of whose hosts were assessed.
	reviewed map[string]struct{}
	// infraEnvs are those that were read.
	infraEnvs map[string]*domain.InfraEnv
}

type tracked[T any] struct {
	before  T
	now     *T
	deleted bool
	// written is set where now was stored.
	written bool
}

// errNotLocked ends a transaction that has to change a cluster, or a host of a cluster, that is not locked.
type errNotLocked struct{ clusterID string }

// Error implements error.
func (e *errNotLocked) Error() string { return "cluster " + e.clusterID + " is not locked" }

// needsLock is an error where a cluster is not locked; hosts that are free have the empty id.
func (w *changes) needsLock(clusterID string) error {
	if clusterID == "" || slices.Contains(w.locked, clusterID) {
		return nil
	}
	return &errNotLocked{clusterID}
}

// show brings memory up to date with what was committed, and publishes it.
func (w *changes) show() {
	e, now := w.e, w.e.Clock.Now()
	for key, t := range w.hosts {
		switch {
		case t.deleted:
			e.Hosts.Remove(key)
		case !t.written && e.Hosts.Confirm(t.now, w.epoch) != nil: // polls that wait for a change go on waiting
		case t.before.Revision == 0 || e.Hosts.Get(key) != nil: // one that is not there was deleted since
			e.Hosts.Put(t.now, w.epoch)
		}
	}
	for id := range w.reviewed {
		e.Reviews.Done(id, now)
	}
	for id, t := range w.clusters {
		if t.deleted {
			e.Reviews.Forget(id)
		}
	}
	for c := range w.announced {
		if c.Quiet {
			e.Hosts.Silence(c.Host)
		}
		switch c.Kind {
		case domain.InfraEnvChanged:
			e.InfraEnvs.Forget(c.ID)
		case domain.ClusterChanged:
			if t := w.clusters[c.ID]; t != nil && !t.deleted && !e.Store.Shared() {
				// There is one writer: agents that get this at once need not read it again.
				e.Clusters.Put(c.ID, new(*t.now), func(a, b *domain.Cluster) bool { return a.Revision > b.Revision })
			} else {
				e.Clusters.Forget(c.ID)
			}
		case domain.HostChanged, domain.EventAdded, domain.EverythingChanged:
		}
	}
	e.Feed.Publish(slices.Collect(maps.Keys(w.announced))...)
}

// Changed announces a change with the commit.
func (w *changes) Changed(c domain.Change) { w.announced[c] = struct{}{} }

// TrackHost returns a host to be changed in place, nil where there is none.
func (w *changes) TrackHost(ctx context.Context, key domain.HostKey) (*domain.Host, error) {
	if t := w.hosts[key]; t != nil {
		if t.deleted {
			return nil, nil
		}
		return t.now, nil
	}
	h, err := w.Host(ctx, key)
	if err != nil || h == nil {
		return nil, err
	}
	if err := w.needsLock(h.ClusterID); err != nil {
		return nil, err
	}
	w.hosts[key] = &tracked[domain.Host]{before: *h, now: h}
	return h, nil
}

// TrackHosts returns those of many hosts that are there, to be changed in place, in the order of their keys.
func (w *changes) TrackHosts(ctx context.Context, keys []domain.HostKey) ([]*domain.Host, error) {
	found, err := w.LockHosts(ctx, keys)
	if err != nil {
		return nil, err
	}
	hosts := make([]*domain.Host, 0, len(found))
	for i := range found {
		if err := w.needsLock(found[i].ClusterID); err != nil {
			return nil, err
		}
		hosts = append(hosts, w.track(&found[i]))
	}
	return hosts, nil
}

// InfraEnv implements Reader. A transaction reads each once: what it decides, it decides from one version.
func (w *changes) InfraEnv(ctx context.Context, id string) (*domain.InfraEnv, error) {
	if e := w.infraEnvs[id]; e != nil {
		return new(*e), nil
	}
	e, err := w.Tx.InfraEnv(ctx, id)
	if err != nil || e == nil {
		return nil, err
	}
	w.infraEnvs[id] = e
	return new(*e), nil
}

// PutInfraEnv implements Writer.
func (w *changes) PutInfraEnv(ctx context.Context, e *domain.InfraEnv) error {
	delete(w.infraEnvs, e.ID)
	return w.Tx.PutInfraEnv(ctx, e)
}

// DeleteInfraEnv implements Writer.
func (w *changes) DeleteInfraEnv(ctx context.Context, id string) error {
	delete(w.infraEnvs, id)
	return w.Tx.DeleteInfraEnv(ctx, id)
}

// AddHost adds a host that is made.
func (w *changes) AddHost(h *domain.Host) { w.hosts[h.HostKey] = &tracked[domain.Host]{now: h} }

// DropHost deletes a host that was read.
func (w *changes) DropHost(key domain.HostKey) { w.hosts[key].deleted = true }

// TrackCluster returns a cluster to be changed in place, nil where there is none: hosts that are free have the empty id.
func (w *changes) TrackCluster(ctx context.Context, id string) (*domain.Cluster, error) {
	if id == "" {
		return nil, nil
	}
	if t := w.clusters[id]; t != nil {
		return t.now, nil
	}
	if err := w.needsLock(id); err != nil {
		return nil, err
	}
	c, err := w.Cluster(ctx, id)
	if err != nil || c == nil {
		return nil, err
	}
	w.clusters[id] = &tracked[domain.Cluster]{before: *c, now: c}
	return c, nil
}

// Members are the hosts of a cluster as this transaction leaves them, to be changed in place.
func (w *changes) Members(ctx context.Context, id string) ([]*domain.Host, error) {
	members, err := w.look(ctx, id)
	for i := range members {
		members[i] = w.track(members[i])
	}
	return members, err
}

// look returns the hosts of a cluster as this transaction leaves them. Those that it does not track yet are shared with memory: track what you change.
func (w *changes) look(ctx context.Context, id string) ([]*domain.Host, error) {
	stored, err := w.HostsOfCluster(ctx, id)
	if err != nil {
		return nil, err
	}
	members := slices.DeleteFunc(stored, func(h *domain.Host) bool { return w.hosts[h.HostKey] != nil })
	for _, t := range w.hosts {
		if !t.deleted && t.now.ClusterID == id {
			members = append(members, t.now)
		}
	}
	slices.SortFunc(members, func(a, b *domain.Host) int { return compareKeys(a.HostKey, b.HostKey) })
	return members, nil
}

// track returns a host that was read, to be changed in place.
func (w *changes) track(h *domain.Host) *domain.Host {
	t := w.hosts[h.HostKey]
	if t == nil {
		t = &tracked[domain.Host]{before: *h, now: new(*h)}
		w.hosts[h.HostKey] = t
	}
	return t.now
}

func compareKeys(a, b domain.HostKey) int {
	return cmp.Or(strings.Compare(a.InfraEnvID, b.InfraEnvID), strings.Compare(a.HostID, b.HostID))
}

// flush writes what changed: clusters, then hosts, then events.
func (w *changes) flush(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(w.clusters)) {
		if t := w.clusters[id]; !t.deleted && !reflect.DeepEqual(t.before, *t.now) {
			t.now.UpdatedAt = w.Now
			if err := w.PutCluster(ctx, t.now); err != nil {
				return err
			}
			w.Changed(domain.Change{Kind: domain.ClusterChanged, ID: id})
		}
	}
	var gone []domain.HostKey
	for _, key := range slices.SortedFunc(maps.Keys(w.hosts), compareKeys) {
		if w.hosts[key].deleted {
			gone = append(gone, key)
		}
		if err := w.flushHost(ctx, key, w.hosts[key]); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		if err := w.DeleteHosts(ctx, gone...); err != nil {
			return err
		}
	}
	for id, t := range w.clusters {
		if t.deleted {
			if err := w.DeleteCluster(ctx, id); err != nil {
				return err
			}
			w.Changed(domain.Change{Kind: domain.ClusterChanged, ID: id})
		}
	}
	for _, e := range w.Recorded {
		if err := w.AddEvent(ctx, e); err != nil {
			return err
		}
	}
	if len(w.Recorded) > 0 && len(w.announced) == 0 {
		w.Changed(domain.Change{Kind: domain.EventAdded})
	}
	w.Announce(slices.Collect(maps.Keys(w.announced))...)
	return nil
}

func (w *changes) flushHost(ctx context.Context, key domain.HostKey, t *tracked[domain.Host]) error {
	switch {
	case t.deleted:
	case reflect.DeepEqual(t.before, *t.now):
		return nil
	default:
		t.now.UpdatedAt = w.Now
		if err := w.PutHost(ctx, t.now); err != nil {
			return err
		}
		t.written = true
	}
	w.Changed(domain.Change{Kind: domain.HostChanged, Host: key, ID: key.InfraEnvID, Quiet: slices.Contains(w.Silenced, key), Gone: t.deleted})
	return nil
}

// AddCluster adds a cluster that is made.
func (w *changes) AddCluster(c *domain.Cluster) { w.clusters[c.ID] = &tracked[domain.Cluster]{now: c} }

// DropCluster deletes a cluster that was read.
func (w *changes) DropCluster(id string) { w.clusters[id].deleted = true }

// Dropped is true for a cluster that this transaction deletes.
func (w *changes) Dropped(id string) bool { return w.clusters[id].deleted }

// DropRead deletes a host that was read by LockHosts.
func (w *changes) DropRead(h *domain.Host) error {
	if err := w.needsLock(h.ClusterID); err != nil {
		return err
	}
	w.hosts[h.HostKey] = &tracked[domain.Host]{before: *h, now: h, deleted: true}
	return nil
}
