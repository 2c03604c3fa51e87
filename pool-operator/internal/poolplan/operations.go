// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import hivev1 "github.com/muster-io/muster/apis/hive/v1"

// settleOperations keeps the operations whose effect is not in view yet, and repeats them. An operation leaves the list only in a view that shows its effect, and a replica that
// plans later has a view at least as new, so it does not decide the operation again.
func (p *pass) settleOperations() {
	at := map[string]int{}
	for i, m := range p.fleet.members {
		if !m.planned {
			at[m.Namespace] = i
		}
	}
	for _, op := range p.pool.Status.Operations {
		i, visible := at[op.Namespace]
		var seen *member
		if visible {
			seen = &p.fleet.members[i]
		}
		switch {
		case op.Kind == hivev1.OperationCreate:
			p.settleCreation(op, seen)
		case op.UID == "":
			p.settleWithdrawal(op, seen)
		default:
			p.settleDeletion(op, seen)
		}
	}
}

func (p *pass) settleCreation(op hivev1.ClusterPoolOperation, seen *member) {
	if seen != nil {
		return
	}
	if refusal, refused := p.in.Refused[op.Namespace]; refused {
		p.withdraw(op, refusal)
		return
	}
	p.ticket.keep(op)
	p.ticket.act(CreateCluster{
		Namespace: op.Namespace, ClusterName: op.ClusterName, Power: power(op.Running), Version: p.fleet.version, Replay: true, Why: WhyRecorded,
	})
}

// settleDeletion drops a deletion that happened, one whose cluster a claim got first (one that is recorded in it), and one whose cluster was protected or paused since. While a claim only
// names it, the first writer gets it. A replica that does not know of any of this deletes nothing: its view of the cluster is older, which is the precondition.
func (p *pass) settleDeletion(op hivev1.ClusterPoolOperation, seen *member) {
	recorded := seen != nil && seen.Claimed()
	if seen == nil || seen.UID != op.UID || seen.Deleting || seen.Kept() || seen.state == claimed && recorded {
		return
	}
	p.ticket.keep(op)
	if seen.state == claimed {
		p.quota.contested++
		return
	}
	p.ticket.act(DeleteCluster{
		Namespace: seen.Namespace, Name: seen.Name, UID: seen.UID, ResourceVersion: seen.ResourceVersion, Replay: true, Why: WhyRecorded,
	})
}

// withdraw turns a creation that the API server refuses into its opposite, so that it neither blocks the pool nor happens later.
func (p *pass) withdraw(op hivev1.ClusterPoolOperation, refusal string) {
	p.ticket.record(p.now, hivev1.ClusterPoolOperation{
		Namespace: op.Namespace, Kind: hivev1.OperationDelete, ClusterName: op.ClusterName, Why: string(WhyCreationRefused),
	})
	p.health.fail(op.Namespace, op.RecordedAt.Time, Failure{Reason: string(WhyCreationRefused), Message: refusal, At: p.now})
	p.wakeAt(p.now.Add(withdrawalTime))
}

// settleWithdrawal waits until no replica can be about to create the cluster any more, and then until the API server says that it is not there.
func (p *pass) settleWithdrawal(op hivev1.ClusterPoolOperation, seen *member) {
	if seen != nil || p.in.Absent[op.Namespace] {
		return
	}
	if op.RecordedAt.After(p.now.Add(oneMoment)) { // the clock of its writer was ahead
		p.ticket.record(p.now, op)
		p.wakeAt(p.now.Add(withdrawalTime))
		return
	}
	p.ticket.keep(op)
	due := op.RecordedAt.Add(withdrawalTime)
	if p.now.Before(due) {
		p.wakeAt(due)
		return
	}
	p.ticket.act(WithdrawCluster{Namespace: op.Namespace, Why: WhyCreationRefused})
}

// recordCreation puts a creation into the ticket.
func (p *pass) recordCreation(namespace, clusterName string, running bool, why Why) {
	op := hivev1.ClusterPoolOperation{Namespace: namespace, Kind: hivev1.OperationCreate, ClusterName: clusterName, Running: running, Why: string(why)}
	p.ticket.record(p.now, op)
	p.ticket.act(CreateCluster{Namespace: namespace, ClusterName: clusterName, Power: power(running), Version: p.fleet.version, Why: why})
	p.fleet.add(p.fleet.planned(p.now, op))
}

// recordDeletion puts the deletion of the member into the ticket.
func (p *pass) recordDeletion(i int, why Why) {
	m := &p.fleet.members[i]
	p.ticket.record(p.now, hivev1.ClusterPoolOperation{Namespace: m.Namespace, Kind: hivev1.OperationDelete, UID: m.UID, Why: string(why)})
	p.ticket.act(DeleteCluster{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Why: why})
	// A cluster of an earlier version says nothing about those that are created now.
	if why == WhyBroken && !m.failure.AfterInstallation && m.Version == p.fleet.version {
		p.health.fail(m.Namespace, m.Created, m.failure)
	}
	m.state = deleting
}

// deletable says whether the member's deletion can be recorded now.
func (p *pass) deletable(i int) bool {
	m := p.fleet.members[i]
	return !m.planned && !m.Kept() && m.state != deleting && p.ticket.slice() > 0 && p.quota.allowsDeletion(m) && !p.ticket.has(m.Namespace)
}
