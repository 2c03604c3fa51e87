// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"time"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// Situation is a part of a host's way into a cluster or out of it, which ends by itself where all is well.
type Situation string

const (
	// Installing is from the start of the installation until the system on the disk has reported.
	Installing Situation = "installing"
	// Joining is from then until the cluster has the host's Node.
	Joining Situation = "joining"
	// Releasing is from the end of a binding until the host is free.
	Releasing Situation = "releasing"
)

// Situations are all of them.
var Situations = []Situation{Installing, Joining, Releasing}

// Situation returns what the host is in, and since when: the last change of its state, or the begin of its release. It is the empty one where the host is in none.
func (h *Host) Situation() (in Situation, since time.Time) {
	if h.Release.Underway() {
		return Releasing, h.Release.StartedAt
	}
	switch h.State {
	case lifecycle.Installing, lifecycle.InstallingInProgress, lifecycle.InstallingPendingUserAction:
		return Installing, h.StateUpdatedAt
	case lifecycle.Installed, lifecycle.AddedToExistingCluster:
		if h.Node.Name != "" && !h.Node.Seen {
			return Joining, h.StateUpdatedAt
		}
	default: // it waits for its user, or for nothing
	}
	return "", time.Time{}
}
