// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/coalesce"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/hostsync"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/resident"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// core is what all parts of the service share: options, transactions, and what is known of the store.
type core struct {
	Options
	engine *transaction.Engine
	// counts are shared by those who ask at the same time.
	counts coalesce.Group[countKey, map[lifecycle.State]int]
	// loadedAt is when the store was loaded last, in the time of the clock, in nanoseconds.
	loadedAt atomic.Int64
	// stopping is closed when Run ends: held polls are answered.
	stopping chan struct{}
	// disconnected is set while changes of other replicas are not known.
	disconnected atomic.Bool
	storeAway    atomic.Bool
	// memory brings the hosts of the engine up to date with the store.
	memory *hostsync.Sync
	resident.Systems

	// Counters for metrics.
	Polls     atomic.Int64
	Held      atomic.Int64
	Refusals  atomic.Int64
	Saved     atomic.Int64
	Timeouts  atomic.Int64
	Registers atomic.Int64
}

// rules are what plans follow.
func (s *core) rules() *hostplan.Rules {
	return &hostplan.Rules{
		Minimums: s.Minimums, OSImages: s.OSImages, RegistryImages: s.RegistryImages, InstallerImage: s.InstallerImage, AgentVersion: s.AgentVersion, Connected: s.engine.Hosts.Connected,
		Reclaims: s.BootArtifacts != nil,
	}
}

var _ transaction.Memory = (*core)(nil)

// KnownInfraEnv implements Memory.
func (s *core) KnownInfraEnv(id string) *domain.InfraEnv { return s.engine.InfraEnvs.Known(id) }

// KnownCluster implements Memory.
func (s *core) KnownCluster(id string) *domain.Cluster { return s.engine.Clusters.Known(id) }

// KnownHost implements Memory.
func (s *core) KnownHost(key domain.HostKey) *domain.Host { return s.engine.Hosts.Known(key) }

// noted keeps whether the store is away: time does not count then.
func (s *core) noted(err error) error {
	switch {
	case err == nil, errors.Is(err, errDryRun):
		if s.storeAway.Swap(false) {
			s.Log.Info("the database is back")
		}
	case domain.KindOf(err) == domain.Unavailable:
		if !s.storeAway.Swap(true) {
			s.Log.Error("the database cannot be reached or written", zap.Error(domain.CauseOf(err)))
		}
	case domain.KindOf(err) != "":
		s.Refusals.Add(1)
	}
	return err
}

// tellRefused writes an event about what was refused with a conflict: its own transaction is undone.
func (s *core) tellRefused(ctx context.Context, refusal error, event domain.Event) {
	if domain.KindOf(refusal) != domain.Conflict {
		return
	}
	err := s.engine.Update(ctx, func(_ context.Context, w *transaction.Work) error {
		event.Severity, event.Category, event.At, event.Props = domain.Failure, "user", w.Now, json.RawMessage("{}")
		w.Recorded = append(w.Recorded, event)
		return nil
	})
	if err != nil {
		s.Log.Info("did not write an event about a refusal", zap.String("event", event.Name))
	}
}

// change runs a transaction about one host of a principal. The clusters are those that it may be taken to.
func (s *core) change(ctx context.Context, by domain.Principal, key domain.HostKey, do func(ctx context.Context, w *transaction.Work, h *domain.Host) error, clusters ...string) (*domain.Host, error) {
	var h *domain.Host
	var before, after domain.Stake
	err := s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) (err error) {
		if h, before, err = w.Reach(ctx, by, key); err != nil {
			return err
		}
		if err := do(ctx, w, h); err != nil {
			return err
		}
		after, err = w.Stake(ctx, by, h)
		return err
	}, append(clusters, s.engine.Hosts.ClusterOf(key))...)
	if err != nil {
		return nil, err
	}
	return domain.Stake{Owns: before.Owns, Uses: before.Uses || after.Uses}.Shown(*h), nil
}

// infraEnv reads an InfraEnv of the principal.
func (s *core) infraEnv(ctx context.Context, by domain.Principal, id string) (e *domain.InfraEnv, err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) error {
		e, err = transaction.OwnInfraEnv(ctx, r, by, id)
		return err
	})
	return e, err
}

// cluster reads a cluster of the principal.
func (s *core) cluster(ctx context.Context, by domain.Principal, id string) (c *domain.Cluster, err error) {
	err = s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) error {
		c, err = transaction.OwnCluster(ctx, r, by, id)
		return err
	})
	return c, err
}

// ownInfraEnv is an InfraEnv of the principal, from memory where there is one writer.
func (s *core) ownInfraEnv(ctx context.Context, by domain.Principal, id string) (*domain.InfraEnv, error) {
	if s.engine.Store.Shared() {
		return s.infraEnv(ctx, by, id)
	}
	e, err := s.knownInfraEnv(ctx, id)
	if err != nil {
		return nil, err
	}
	if !by.Owns(e.Owner) {
		return nil, domain.RefuseUnknown("InfraEnv", id)
	}
	return new(*e), nil
}

// ownCluster is a cluster of the principal, from memory where there is one writer.
func (s *core) ownCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error) {
	if s.engine.Store.Shared() {
		return s.cluster(ctx, by, id)
	}
	c, err := s.knownCluster(ctx, id)
	if err != nil {
		return nil, err
	}
	if !by.Owns(c.Owner) {
		return nil, domain.RefuseUnknown("Cluster", id)
	}
	return new(*c), nil
}

// knownInfraEnv is an InfraEnv from memory. It is not to be changed.
func (s *core) knownInfraEnv(ctx context.Context, id string) (*domain.InfraEnv, error) {
	return s.engine.InfraEnvs.Get(id, func() (*domain.InfraEnv, error) { return s.infraEnv(ctx, domain.Machine, id) })
}

// knownCluster is a cluster from memory. It is not to be changed.
func (s *core) knownCluster(ctx context.Context, id string) (*domain.Cluster, error) {
	return s.engine.Clusters.Get(id, func() (*domain.Cluster, error) { return s.cluster(ctx, domain.Machine, id) })
}
