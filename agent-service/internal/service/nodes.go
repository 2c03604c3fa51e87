// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// NoteNode keeps what the cluster knows of a host that is, or becomes, its node. Reports of the machine, and its certificates, are kept.
func (s *Machines) NoteNode(ctx context.Context, key domain.HostKey, clusterID string, node domain.Node) error {
	return s.note(ctx, key, clusterID, func(h *domain.Host) {
		h.Node.Own = h.Node.Own || node.Seen
		h.Node.WasReady = h.Joined() && (h.Node.WasReady || h.Node.Ready) || node.Ready
		h.Node.Name, h.Node.Seen, h.Node.Ready = node.Name, node.Seen, node.Ready
	})
}

// NoteCertificate keeps a certificate that was approved for a host in a cluster.
func (s *Machines) NoteCertificate(ctx context.Context, key domain.HostKey, clusterID string, certificate domain.Certificate) error {
	return s.note(ctx, key, clusterID, func(h *domain.Host) { h.Node.Approve(certificate) })
}

// note changes a host while it is bound to a cluster.
func (s *Machines) note(ctx context.Context, key domain.HostKey, clusterID string, do func(*domain.Host)) error {
	_, err := s.change(ctx, domain.Machine, key, func(ctx context.Context, w *transaction.Work, h *domain.Host) error {
		if h.ClusterID != clusterID {
			return nil
		}
		before := h.Node.Ready
		do(h)
		if before == h.Node.Ready || h.DayTwo {
			return nil
		}
		return w.Refresh(ctx, h) // its cluster may wait for it
	})
	return err
}

// LeaveCluster keeps that the cluster which a host was released from at a time is rid of its Node; note says what of that was left behind, empty for nothing. It changes
// nothing for another release.
func (s *Machines) LeaveCluster(ctx context.Context, key domain.HostKey, releasedAt time.Time, note string) error {
	return s.learn(ctx, key, func(_ context.Context, w *transaction.Work, h *domain.Host) error {
		if !h.Release.Underway() || h.Release.Left() || !h.Release.StartedAt.Equal(releasedAt) {
			return nil
		}
		h.Release.LeftAt, h.Release.Note = w.Now, domain.Truncate(domain.WithoutSecrets(note), 1000)
		if note != "" {
			w.Tell(h, "", domain.Warning, "host_node_left_behind", true, "Host %s: %s", h.FreeLabel(), h.Release.Note)
		}
		return nil
	})
}
