// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// detach removes the node of a host that a user has taken out of management, so that Ironic acts on the machine no more: it would switch the power back that others
// switch. Nothing is done to the machine. The node is made anew when the host is managed again.
func (p *pass) detach() Decision {
	switch {
	case p.Seen.Node == nil:
		return p.do(Action{Call: ReadNode, Node: p.NodeID})
	case p.Seen.Claimed == nil:
		return p.do(Action{Call: Claim, Node: p.Seen.Node.UUID, Known: *p.Seen.Node})
	}
	n := *p.Seen.Node
	switch {
	case *p.Seen.Claimed != "":
		return p.notIts(*p.Seen.Claimed)
	case n.Busy():
		return p.wait(metal3v1.ReasonNodeBusy, "Ironic works on the node at the moment; the host is detached afterwards.", BusyRetry)
	case !n.Maintenance:
		p.Seen.Node = nil
		return p.do(Action{Call: EnterMaintenance, Node: n.UUID})
	}
	p.NodeID = ""
	return p.do(Action{Call: RemoveNode, Node: n.UUID}, normal(metal3v1.EventNodeDeleted, "Detach", "Deleted node "+n.UUID+" in Ironic; the machine stays as it is"))
}

// leftAlone ends a pass over a host that is detached.
func (p *pass) leftAlone() Decision {
	until := " to have it managed again."
	if p.Host.DeletionTimestamp != nil {
		until = ", which delays the deletion of the host, to have the machine deprovisioned and the host deleted."
	}
	return p.end(Outcome{Event: Nothing, Settled: true, Reason: metal3v1.ReasonDetached,
		Message: "The host is out of management, and its machine stays as it is. Remove the annotation " + metal3v1.DetachedAnnotation + until})
}

// deployedBy reports whether what is on a node is the host's. Ironic forgets the instance when it fails to end a deployment.
func (p *pass) deployedBy(n Node) bool {
	return n.Instance == string(p.Host.UID) || n.Instance == "" && n.Name == NodeName(p.Host)
}

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
	used := n.Instance != "" || n.Deployed()
	switch {
	case kept != "":
	case used && !p.Facts.Detached && !p.deployedBy(n):
		kept = "it is " + n.State + " and something else occupies it"
	case !n.Maintenance && (used || n.guarded()): // nothing is done to the machine
		p.Seen.Node = nil
		return p.do(Action{Call: EnterMaintenance, Node: n.UUID})
	}
	if kept != "" {
		return p.end(Outcome{Event: Done}, warning(metal3v1.EventNodeKept, "Delete", "Node "+n.UUID+" stays in Ironic: "+kept))
	}
	if d, wait := p.leave(n, waiting(metal3v1.ReasonNodeBusy, "The inspection is being ended.", answerRetry)); wait {
		return d
	}
	told := normal(metal3v1.EventNodeDeleted, "Delete", "Deleted node "+n.UUID+" in Ironic")
	if n.Deployed() {
		told = warning(metal3v1.EventNodeDeleted, "Delete", "Deleted node "+n.UUID+" in Ironic, which was "+n.State+"; the machine stays as it is, with what is on its disks")
	}
	return p.last(Action{Call: RemoveNode, Node: n.UUID}, Outcome{Event: Done}, told)
}
