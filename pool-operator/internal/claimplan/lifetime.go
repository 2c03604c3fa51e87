// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Lifetime returns how long a claim lives once it has a cluster, nil for ever: its own lifetime, or else the pool's default, and never more than the pool's maximum. When
// the pool is gone, the claim's own lifetime stays; a claim without one keeps what was published.
func Lifetime(claim *hivev1.ClusterClaim, pool *hivev1.ClusterPool) *metav1.Duration {
	own := claim.Spec.Lifetime
	switch {
	case pool == nil && own != nil:
		return own
	case pool == nil:
		return claim.Status.Lifetime
	case pool.Spec.ClaimLifetime == nil:
		return own
	}
	limits := pool.Spec.ClaimLifetime
	if own == nil {
		own = limits.Default
	}
	if limits.Maximum != nil && (own == nil || own.Duration > limits.Maximum.Duration) {
		own = limits.Maximum
	}
	return own
}

func (s *Snapshot) lifetime() *metav1.Duration { return Lifetime(s.Claim, s.Pool) }

// claimedAt is when Pending turned False; zero before. The clock of the lifetime starts there.
func (s *Snapshot) claimedAt() time.Time {
	pending := hivev1.FindCondition(s.Claim.Status.Conditions, hivev1.ClusterClaimPending)
	if pending == nil || pending.Status != corev1.ConditionFalse {
		return time.Time{}
	}
	return pending.LastTransitionTime.Time
}

// expiry returns when the claim's lifetime is over. It is not limited before the claim has a cluster.
func (s *Snapshot) expiry() (expires time.Time, limited bool) {
	lifetime, claimedAt := s.lifetime(), s.claimedAt()
	if lifetime == nil || claimedAt.IsZero() {
		return time.Time{}, false
	}
	return claimedAt.Add(lifetime.Duration), true
}
