// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// work is one transaction: it remembers what it read and writes what changed at its end.
type work struct {
	Tx
	s        *Service
	now      time.Time
	epoch    int64 // of the directory when it began
	hosts    map[HostKey]*tracked[Host]
	clusters map[string]*tracked[Cluster]
	// locked are the clusters that this transaction may change.
	locked  []string
	changes map[Change]struct{}
	events  []Event
	// quiet are hosts that appeared elsewhere: they count as never seen from now on.
	quiet []HostKey
	// reviewed are the clusters all of whose hosts were assessed.
	reviewed map[string]struct{}
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

// update runs a transaction and, after it, shows what it changed to everybody who waits. The clusters that it changes are named as far as they are known; where it finds out
// that there are others, it runs again with those locked, too.
func (s *Service) update(ctx context.Context, do func(ctx context.Context, w *work) error, clusters ...string) error {
	for {
		err := s.inTurn(ctx, clusters, func() error {
			return s.store.Update(ctx, func(ctx context.Context, tx Tx) error { return s.transact(ctx, tx, clusters, do) })
		})
		missing, is := errors.AsType[*errNotLocked](err)
		if !is {
			return s.noted(err)
		}
		clusters = append(slices.Clone(clusters), missing.clusterID)
	}
}

// inTurn waits for the turn at clusters where the store does not let its transactions wait for theirs.
func (s *Service) inTurn(ctx context.Context, clusters []string, do func() error) error {
	if !s.store.Shared() {
		return do()
	}
	leave, err := s.queues.enter(ctx, clusters)
	if err != nil {
		return err
	}
	defer leave()
	return do()
}

func (s *Service) transact(ctx context.Context, tx Tx, clusters []string, do func(ctx context.Context, w *work) error) error {
	tx.Recall(s)
	w := &work{
		Tx: tx, s: s, now: s.Now().UTC().Round(0), epoch: s.hosts.now(), hosts: map[HostKey]*tracked[Host]{}, clusters: map[string]*tracked[Cluster]{}, locked: clusters,
		changes: map[Change]struct{}{}, reviewed: map[string]struct{}{},
	}
	if err := tx.LockClusters(ctx, clusters...); err != nil {
		return err
	}
	if err := do(ctx, w); err != nil {
		return err
	}
	tx.AfterCommit(w.show)
	return w.flush(ctx)
}

// needsLock is an error where a cluster is not locked; hosts that are free have the empty id.
func (w *work) needsLock(clusterID string) error {
	if clusterID == "" || slices.Contains(w.locked, clusterID) {
		return nil
	}
	return &errNotLocked{clusterID}
}

// show makes what was committed known to everybody.
func (w *work) show() {
	s, now := w.s, w.s.clock.now()
	for key, t := range w.hosts {
		switch {
		case t.deleted:
			s.hosts.remove(key)
		case !t.written && s.hosts.confirm(t.now, w.epoch) != nil: // polls that wait for a change go on waiting
		case t.before.Revision == 0 || s.hosts.get(key) != nil: // one that is not there was deleted since
			s.hosts.put(t.now, now, w.epoch)
		}
	}
	for id := range w.reviewed {
		s.reviews.done(id, now)
	}
	for id, t := range w.clusters {
		if t.deleted {
			s.reviews.forget(id)
		}
	}
	for c := range w.changes {
		if c.Quiet {
			s.hosts.quiet(c.Host)
		}
		switch c.Kind {
		case InfraEnvChanged:
			s.infraEnvs.forget(c.ID)
		case ClusterChanged:
			if t := w.clusters[c.ID]; t != nil && !t.deleted && !s.store.Shared() {
				// Nobody else writes: agents that are told of this at once need not read it again.
				s.clusters.put(c.ID, new(*t.now), func(a, b *Cluster) bool { return a.Revision > b.Revision })
			} else {
				s.clusters.forget(c.ID)
			}
		case HostChanged, EventAdded, EverythingChanged:
		}
	}
	s.feed.publish(slices.Collect(maps.Keys(w.changes))...)
}

func (w *work) changed(c Change) { w.changes[c] = struct{}{} }

// host returns a host to be changed in place, nil where there is none.
func (w *work) host(ctx context.Context, key HostKey) (*Host, error) {
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
	w.hosts[key] = &tracked[Host]{before: *h, now: h}
	return h, nil
}

func (w *work) add(h *Host) { w.hosts[h.HostKey] = &tracked[Host]{now: h} }

func (w *work) drop(key HostKey) { w.hosts[key].deleted = true }

// cluster returns a cluster to be changed in place, nil where there is none: hosts that are free have the empty id.
func (w *work) cluster(ctx context.Context, id string) (*Cluster, error) {
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
	w.clusters[id] = &tracked[Cluster]{before: *c, now: c}
	return c, nil
}

// members are the hosts of a cluster as this transaction leaves them, to be changed in place.
func (w *work) members(ctx context.Context, id string) ([]*Host, error) {
	members, err := w.look(ctx, id)
	for i := range members {
		members[i] = w.track(members[i])
	}
	return members, err
}

// look returns the hosts of a cluster as this transaction leaves them. Those that it does not track yet are shared with memory: track what you change.
func (w *work) look(ctx context.Context, id string) ([]*Host, error) {
	stored, err := w.HostsOfCluster(ctx, id)
	if err != nil {
		return nil, err
	}
	members := slices.DeleteFunc(stored, func(h *Host) bool { return w.hosts[h.HostKey] != nil })
	for _, t := range w.hosts {
		if !t.deleted && t.now.ClusterID == id {
			members = append(members, t.now)
		}
	}
	slices.SortFunc(members, func(a, b *Host) int { return compareKeys(a.HostKey, b.HostKey) })
	return members, nil
}

// track returns a host that was read, to be changed in place.
func (w *work) track(h *Host) *Host {
	t := w.hosts[h.HostKey]
	if t == nil {
		t = &tracked[Host]{before: *h, now: new(*h)}
		w.hosts[h.HostKey] = t
	}
	return t.now
}

func compareKeys(a, b HostKey) int {
	return cmp.Or(strings.Compare(a.InfraEnvID, b.InfraEnvID), strings.Compare(a.HostID, b.HostID))
}

// flush writes what changed: clusters, then hosts, then events.
func (w *work) flush(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(w.clusters)) {
		if t := w.clusters[id]; !t.deleted && !reflect.DeepEqual(t.before, *t.now) {
			t.now.UpdatedAt = w.now
			if err := w.PutCluster(ctx, t.now); err != nil {
				return err
			}
			w.changed(Change{Kind: ClusterChanged, ID: id})
		}
	}
	var gone []HostKey
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
			w.changed(Change{Kind: ClusterChanged, ID: id})
		}
	}
	for _, e := range w.events {
		if err := w.AddEvent(ctx, e); err != nil {
			return err
		}
	}
	if len(w.events) > 0 && len(w.changes) == 0 {
		w.changed(Change{Kind: EventAdded})
	}
	w.Announce(slices.Collect(maps.Keys(w.changes))...)
	return nil
}

func (w *work) flushHost(ctx context.Context, key HostKey, t *tracked[Host]) error {
	switch {
	case t.deleted:
	case reflect.DeepEqual(t.before, *t.now):
		return nil
	default:
		t.now.UpdatedAt = w.now
		if err := w.PutHost(ctx, t.now); err != nil {
			return err
		}
		t.written = true
	}
	w.changed(Change{Kind: HostChanged, Host: key, ID: key.InfraEnvID, Quiet: slices.Contains(w.quiet, key), Gone: t.deleted})
	return nil
}

// tell adds an event about a host. The InfraEnv's administrator sees it with forInfraEnv, the cluster's creator while the
// host is bound.
func (w *work) tell(h *Host, clusterID, severity, name string, forInfraEnv bool, format string, values ...any) {
	w.events = append(w.events, Event{
		Name: name, InfraEnvID: h.InfraEnvID, HostID: h.HostID, ClusterID: clusterID, Severity: severity, Category: "user",
		Message: bound(fmt.Sprintf(format, values...), 2000), At: w.now, ForInfraEnv: forInfraEnv, ForCluster: clusterID != "", Props: json.RawMessage("{}"),
	})
}

// tellCluster adds an event about a cluster.
func (w *work) tellCluster(c *Cluster, severity, name, format string, values ...any) {
	w.events = append(w.events, Event{
		Name: name, ClusterID: c.ID, Severity: severity, Category: "user", Message: bound(fmt.Sprintf(format, values...), 2000), At: w.now, ForCluster: true,
		Props: json.RawMessage("{}"),
	})
}

func bound(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

var addresses = regexp.MustCompile(`([a-z][a-z0-9+.-]*://)(?:[^/\s"@]*@)?([^\s"?#]*)(?:[?#][^\s"]*)?`)

// withoutSecrets leaves out what may be one in the addresses that a text names: the user, and what comes after the path.
func withoutSecrets(s string) string { return addresses.ReplaceAllString(s, "$1$2") }

// label is how events call a host.
func (h *Host) label() string { return cmp.Or(h.Hostname(), h.HostID) }

// freeLabel is how events call a host that the administrator of its InfraEnv sees too: not as it is called in a cluster.
func (h *Host) freeLabel() string {
	if h.ClusterID == "" {
		return h.label()
	}
	return cmp.Or(h.FreeHostname, h.Summary.Hostname, h.HostID)
}

// enter puts a host into a state and tells it, where it is another one.
func (w *work) enter(h *Host, to lifecycle.State, info string) {
	if h.State == to {
		if info != "" && h.StateInfo != info {
			h.StateInfo = info
		}
		return
	}
	if to == lifecycle.Failed && h.Progress.Stage != "" {
		info += " (stage " + string(h.Progress.Stage) + ")"
	}
	from := h.State
	h.State, h.StateInfo, h.StateUpdatedAt = to, info, w.now
	severity := Info
	if to == lifecycle.Failed || to == lifecycle.Disconnected || to == lifecycle.DisconnectedUnbound {
		severity = Warning
	}
	w.tell(h, h.ClusterID, severity, "host_status_updated", h.ClusterID == "", "Host %s: updated status from %s to %s (%s)", h.label(), from, to, info)
}

// apply does what an outcome says, but for Reassess, which the caller does when all is in place. It returns the refusal.
func (w *work) apply(h *Host, o lifecycle.Outcome, clusterID string, dayTwo bool) error {
	if o.Refusal != "" {
		return Refuse(Conflict, o.Refusal, "host %s: %s", h.HostID, o.Info)
	}
	for _, effect := range o.Effects {
		switch effect {
		case lifecycle.ForgetDiscovery:
			h.Twin, h.TwinAt = "", time.Time{}
			h.Summary, h.NTPSources, h.Checks, h.Validations, h.MediaConnected, h.Images, h.ImagesDetail = emptySummary, nil, noChecks, nil, true, validate.Unknown, ""
		case lifecycle.ForgetInstallation:
			h.Progress, h.Bootstrap, h.Attempts = Progress{}, false, 0
			h.forgetPreparation()
		case lifecycle.ForgetProgress:
			h.Progress, h.Attempts = Progress{}, h.Attempts+1
		case lifecycle.LeaveCluster:
			h.leave()
		case lifecycle.JoinCluster:
			h.ClusterID, h.DayTwo, h.FreeHostname = clusterID, dayTwo, h.RequestedHostname
		case lifecycle.EndTokens:
			h.Stamps = Stamps{Registration: newStamp(), Binding: newStamp()}
		case lifecycle.Reassess:
		}
	}
	return nil
}

// forgetPreparation makes the checks before an installation run again. Agents of today's system do not repeat within an hour what they said, so what passed stays.
func (h *Host) forgetPreparation() {
	if !h.ofToday() || h.Images != validate.Passed {
		h.Images, h.ImagesDetail = validate.Unknown, ""
	}
	if !h.ofToday() || h.Checks.DiskSpeed != validate.Passed {
		h.Checks.DiskSpeed = validate.Unknown
	}
}

// leave ends a binding: what the tenant said of the host goes, what the machine reported stays.
func (h *Host) leave() {
	h.PreviousCluster, h.ClusterID, h.DayTwo = h.ClusterID, "", false
	h.HostSettings = HostSettings{Approved: h.Approved, Role: autoAssign, RequestedHostname: h.FreeHostname}
	h.FreeHostname, h.Validations = "", nil // their sentences name the cluster and what the host was called there
	h.Checks = validate.Checks{Registry: h.Checks.Registry, RegistryDetail: h.Checks.RegistryDetail, DiskSpeed: h.Checks.DiskSpeed}
}
