// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import "time"

// releaseNotice is how long a claim has been deleting before its status says what it waits for. Most are gone by then.
const releaseNotice = 2 * time.Second

// release takes a claim that is being deleted out of the world: first its subjects' rights, then its cluster, then itself.
func (s *Snapshot) release(now time.Time, own *Cluster) Decision {
	if !hasFinalizer(s.Claim) {
		return Decision{}
	}
	if own == nil {
		return s.letGo()
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

// revoke takes the subjects' rights. The Role gives nobody any by itself: it goes with the cluster.
func (s *Snapshot) revoke(cluster string, why Why) RevokeRights {
	return RevokeRights{Cluster: cluster, Binding: true, Why: why}
}

// letGo ends a claim of which no cluster is left, or whose cluster is not its own.
func (s *Snapshot) letGo() Decision {
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
	bounded := s.Pool != nil && s.Pool.Spec.MaxConcurrent != nil
	if c.Deleting || c.Paused || c.Protected || bounded && c.Marked {
		return nil
	}
	return ReleaseCluster{Cluster: c.Namespace, UID: c.UID, Mark: bounded, Why: why}
}

// GiveUp returns how a cluster is given up whose claim does not exist any more, given what is there of its pool and of the rights in its namespace; nil when
// nothing is left to do. The caller has made sure of the claim's absence on the API server.
func GiveUp(s Snapshot) Action {
	switch {
	case s.Own == nil || !s.Own.claimed() || s.Own.Paused:
		return nil
	case s.Binding != nil:
		return s.revoke(s.Own.Namespace, WhyOrphaned)
	default:
		return s.giveUp(s.Own, WhyOrphaned)
	}
}
