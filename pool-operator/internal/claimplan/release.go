// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// releaseNotice is how long a claim has been deleting before its status says what it waits for. Most are gone by then.
const releaseNotice = 2 * time.Second

// release ends a claim that is being deleted: first go its subjects' rights, then its cluster, then itself.
func (s *Snapshot) release(now time.Time, own *Cluster) Decision {
	if !hasFinalizer(s.Claim) {
		return Decision{}
	}
	if own == nil {
		return s.removeFinalizer()
	}
	if s.Binding != nil {
		return Decision{Action: s.revoke(own.Namespace, WhyDeleted)}
	}
	if action := s.giveUp(own, WhyDeleted); action != nil {
		return Decision{Action: action}
	}
	if notice := s.Claim.DeletionTimestamp.Add(releaseNotice); own.Deleting && now.Before(notice) {
		return Decision{RequeueAfter: notice.Sub(now)}
	}
	return Decision{Status: s.report(now, s.releasing(own))}
}

// revoke takes the subjects' rights. The Role alone grants no rights; it is deleted with the cluster.
func (s *Snapshot) revoke(cluster string, why Why) RevokeRights {
	return RevokeRights{Cluster: cluster, Binding: true, Why: why}
}

// removeFinalizer ends a claim of which no cluster is left, or whose cluster is not its own.
func (s *Snapshot) removeFinalizer() Decision {
	named := s.Claim.Spec.Namespace
	switch {
	case named != "" && !s.Verified:
		return Decision{Action: VerifyCluster{Cluster: named, Why: WhyDoubt}}
	case named != "" && s.Own == nil && s.Binding != nil:
		return Decision{Action: s.revoke(named, WhyDeleted)}
	default:
		return Decision{Action: DropFinalizer{Why: WhyReleased}}
	}
}

// giveUp returns how the cluster is given up; nil when that has been done, or must not be. A pool that bounds how many clusters are deleted at a time deletes it
// itself, first of all; otherwise there is nothing to wait for.
func (s *Snapshot) giveUp(c *Cluster, why Why) Action {
	bounded := s.Pool != nil && s.pool().Bounded
	if c.Deleting || c.Kept() || bounded && c.Marked {
		return nil
	}
	return ReleaseCluster{Cluster: c.Namespace, UID: c.UID, ResourceVersion: c.ResourceVersion, Mark: bounded, Why: why}
}

// OrphanGrace is how long a cluster is kept whose claim was there and is not any more, as after its finalizer was removed by hand. The cluster says so meanwhile, and a user who needs it can
// protect it.
const OrphanGrace = 10 * time.Minute

// GiveUp returns how a cluster is given up whose claim does not exist, given what is there of its pool and of the rights in its namespace; nil when nothing is to be done now, and
// then wait is when time alone changes that. Abandoned says that this process recorded the claim in the cluster after the claim was gone: no user ever had the cluster. The caller has made sure
// of the claim's absence on the API server. A pause or a deletion of the cluster does not keep its subjects' rights.
func GiveUp(now time.Time, s Snapshot, abandoned bool) (action Action, wait time.Duration) {
	own := s.Own
	if own == nil || !own.Claimed() {
		return nil, 0
	}
	missing := ReportMissing{Cluster: own.Namespace, UID: own.UID, ResourceVersion: own.ResourceVersion, Restored: own.Restored, Why: WhyOrphaned}
	switch {
	case s.Binding != nil && !own.Restored:
		return s.revoke(own.Namespace, WhyOrphaned), 0
	case own.Paused || own.Deleting:
		return nil, 0
	case own.Restored && own.OrphanReason != hivev1.ReasonClaimNotRestored:
		return missing, 0
	case own.Restored:
		return nil, 0
	case abandoned || own.Marked:
		return s.giveUp(own, WhyOrphaned), 0
	case own.OrphanReason != hivev1.ReasonClaimDeleted:
		return missing, 0
	}
	if due := own.OrphanedSince.Add(OrphanGrace); now.Before(due) {
		return nil, due.Sub(now)
	}
	return s.giveUp(own, WhyOrphaned), 0
}
