// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import "github.com/muster-io/muster/agent-service/internal/validate"

// Stake is what a principal has to do with a host: its InfraEnv is theirs, the cluster that it is in, both, or neither.
type Stake struct {
	Owns bool
	Uses bool
}

// StakeIn is the stake of a principal in a host; owner is that of its cluster, nil for a free host.
func StakeIn(by Principal, h *Host, owner *Owner) Stake {
	return Stake{Owns: by.Owns(h.Owner), Uses: owner != nil && by.Owns(*owner)}
}

// Settles is true for the principal that says how the host is used: its owner while it is free, its user while it is bound.
func (s Stake) Settles(h *Host) bool { return s.Uses || s.Owns && h.ClusterID == "" }

// Shown is what the principal may see of a host. The owner of the InfraEnv does not see what the user of the cluster says of it, who does not see whose it is.
func (s Stake) Shown(h Host) *Host {
	if !s.Owns {
		h.Owner = Owner{}
	}
	if !s.Settles(&h) {
		h.HostSettings = HostSettings{Approved: h.Approved, Role: h.Role, RequestedHostname: h.FreeHostname}
		h.StateInfo, h.Validations, h.Progress.Info = "The host is in a cluster of another user", nil, ""
		h.Checks = validate.Checks{}
	}
	return &h
}
