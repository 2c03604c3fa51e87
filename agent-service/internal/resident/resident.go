// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resident keeps what installed systems say of themselves when they ask for instructions, and finds what they join their cluster with again.
package resident

import (
	"context"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/hostsync"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// Systems are those of all hosts. Its methods are safe for concurrent use.
type Systems struct {
	engine *transaction.Engine
	memory *hostsync.Sync
	rejoin func(ctx context.Context, h *domain.Host, c *domain.Cluster) (*join.Values, error)
	log    *zap.Logger
}

// New returns the systems of hosts that transactions of the engine read and write. Rejoin is what a host joins its cluster with again, nil where hosts join none.
func New(engine *transaction.Engine, memory *hostsync.Sync, rejoin func(context.Context, *domain.Host, *domain.Cluster) (*join.Values, error), log *zap.Logger) Systems {
	return Systems{engine, memory, rejoin, log}
}

// NoteResident keeps that the installed system of a host asks for instructions, with a token that carries stamps: it can be asked to restart into the discovery image. A host that was
// installed, and booted the discovery image by mistake, is what it was when its system asks again, which reports no stage a second time.
func (s Systems) NoteResident(ctx context.Context, known *domain.Host, carried domain.Stamps) error {
	returned := returns(known, carried)
	if !returned && (known.Resident || lifecycle.Busy(known.State) && !lifecycle.AfterReboot(known.Progress.Stage)) {
		return nil
	}
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		h, _, err := w.Reach(ctx, domain.Machine, known.HostKey)
		if err != nil {
			return err
		}
		h.Resident = true
		if !returns(h, carried) {
			return nil
		}
		if err := w.ActBecause(ctx, h, lifecycle.Progress, nil, lifecycle.StageDone, ""); err != nil {
			return err
		}
		return w.Refresh(ctx, h)
	}, s.engine.Hosts.ClusterOf(known.HostKey))
}

// returns is true for a host whose installation was done, that waits for its user to boot it from its disk, and whose installed system asks.
func returns(h *domain.Host, carried domain.Stamps) bool {
	return h.State == lifecycle.InstallingPendingUserAction && h.Progress.Stage == lifecycle.StageDone && installed(h, carried)
}

// NoteKubelet keeps what the installed system of a host, with a token that carries stamps, says of the client certificate of its kubelet. A poll without news writes nothing, and a
// token that has ended, or is not of an installed system, changes nothing.
func (s Systems) NoteKubelet(ctx context.Context, key domain.HostKey, carried domain.Stamps, said agentproto.KubeletCertificate) error {
	e, err := s.memory.Entry(ctx, key)
	if err != nil {
		return err
	}
	known := e.Host()
	if !installed(known, carried) {
		return nil
	}
	after, plan := *known, &hostplan.Plan{Now: s.engine.Now(), NewStamp: transaction.NewStamp}
	if plan.TakeCertificate(&after, said); after.Node.Rejoin == known.Node.Rejoin {
		return nil
	}
	return s.change(ctx, key, func(w *transaction.Work, h *domain.Host) {
		if installed(h, carried) {
			w.TakeCertificate(h, said)
		}
	})
}

// installed says whether a token that carries stamps is that of the present installed system of a host.
func installed(h *domain.Host, carried domain.Stamps) bool {
	return carried.Registration == "" && carried.Binding != "" && h.Stamps.Accept(carried)
}

func (s Systems) change(ctx context.Context, key domain.HostKey, do func(*transaction.Work, *domain.Host)) error {
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		h, _, err := w.Reach(ctx, domain.Machine, key)
		if err == nil {
			do(w, h)
		}
		return err
	}, s.engine.Hosts.ClusterOf(key))
}

// Kubeconfig is what the kubelet of a host asks for another certificate with, empty where it has one, or where that is not known at the moment: it is asked for again.
func (s Systems) Kubeconfig(ctx context.Context, h *domain.Host, cluster func(context.Context, string) (*domain.Cluster, error)) string {
	if s.rejoin == nil || !h.Rejoins() {
		return ""
	}
	c, err := cluster(ctx, h.ClusterID)
	var values *join.Values
	if err == nil {
		values, err = s.rejoin(ctx, h, c)
	}
	if err != nil {
		s.log.Warn("a machine that lost its certificate cannot join its cluster again at the moment", zap.Stringer("host", h.HostKey), zap.Error(err))
	}
	if err != nil || values == nil {
		return ""
	}
	return values.BootstrapKubeconfig()
}
