// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostsync

import (
	"context"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// BootsFromDisk says whether a machine of an InfraEnv boots its disk. Of several that report the MAC, one that boots its disk is
// enough: none of them brings an installed system down. Unavailable where memory cannot be trusted and the store cannot be read, and before all hosts were read once.
func (s *Sync) BootsFromDisk(ctx context.Context, infraEnvID, mac string) (bool, error) {
	if !s.Complete() {
		return false, domain.Refuse(domain.Unavailable, "Loading", "the hosts are being loaded")
	}
	disk, known, err := s.ofMAC(ctx, infraEnvID, mac)
	if known || err != nil {
		return disk, err
	}
	// Another replica may know a machine with this MAC.
	if err := s.catchUp(ctx, infraEnvID); err != nil {
		return false, err
	}
	disk, _, err = s.ofMAC(ctx, infraEnvID, mac)
	return disk, err
}

// catchUp reads the hosts of an InfraEnv that other replicas may have made or changed: those that this one was notified of, or, where it may have missed notifications, all of them.
func (s *Sync) catchUp(ctx context.Context, infraEnvID string) error {
	if s.Loaded() && !s.disconnected.Load() {
		if s.engine.Hosts.Unread(infraEnvID) {
			return s.ReadChanged(ctx)
		}
		return nil
	}
	_, err := s.reads.Do(ctx, infraEnvID, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.readPages(ctx, domain.HostFilter{InfraEnvID: infraEnvID}, func(domain.HostKey) {})
	})
	return err
}

// ofMAC looks at the hosts in memory that report a MAC, each as the store has it.
func (s *Sync) ofMAC(ctx context.Context, infraEnvID, mac string) (disk, known bool, err error) {
	for _, h := range s.engine.Hosts.OfMAC(infraEnvID, mac) {
		e, err := s.Entry(ctx, h.HostKey)
		switch {
		case domain.KindOf(err) == domain.NotFound:
			continue
		case err == nil:
			h = e.Host()
		case !bootsFromDisk(h):
			return false, false, err
		}
		// An installed system is not brought down because the store is away.
		if known = true; bootsFromDisk(h) {
			return true, true, nil
		}
	}
	return false, known, nil
}

func bootsFromDisk(h *domain.Host) bool { return lifecycle.BootsFromDisk(h.State, h.Progress.Stage) }
