// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// removeNode removes the node of a host that goes, unless it is not the host's. The node is the recorded one, or the one that the machine came back as.
func (p *pass) removeNode() Decision {
	uuid := p.NodeID
	if uuid == "" || p.Seen.Lost {
		switch {
		case p.Seen.Found == nil:
			return p.do(Action{Call: Find})
		case *p.Seen.Found == "":
			return p.ironicFailed(inventory.ErrNotFound)
		}
		uuid = *p.Seen.Found
	}
	switch {
	case p.Seen.Node == nil:
		return p.do(Action{Call: ReadNode, Node: uuid})
	case p.Seen.Claimed == nil:
		return p.do(Action{Call: Claim, Node: p.Seen.Node.UUID, Known: *p.Seen.Node})
	}
	n, kept := *p.Seen.Node, *p.Seen.Claimed
	if used := n.Instance != "" || n.Deployed(); used && kept == "" {
		switch {
		case !p.detached():
			kept = "it is " + n.State + " and something occupies it"
		case !n.Maintenance: // Ironic deletes a node in use only then; nothing is done to the machine
			p.Seen.Node = nil
			return p.do(Action{Call: EnterMaintenance, Node: n.UUID})
		}
	}
	if kept != "" {
		return p.end(Outcome{Event: Done}, warning(metal3v1.EventNodeKept, "Delete", "Node "+n.UUID+" stays in Ironic: "+kept))
	}
	if d, wait := p.leave(n, waiting(metal3v1.ReasonNodeBusy, "The inspection is being ended.", answerRetry)); wait {
		return d
	}
	return p.last(Action{Call: RemoveNode, Node: n.UUID}, Outcome{Event: Done},
		normal(metal3v1.EventNodeDeleted, "Delete", "Deleted node "+n.UUID+" in Ironic"))
}
