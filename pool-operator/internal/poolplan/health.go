// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// How creation slows down when clusters keep breaking.
const (
	// firstDelay is how long creation waits after one failure; each further failure doubles it.
	firstDelay = 30 * time.Second
	// longestDelay is the longest that creation waits.
	longestDelay = time.Hour
	// breakerThreshold is how many failures in a row open the circuit breaker: from then on one cluster at a time is tried.
	breakerThreshold = 5
)

// oneMoment is within how much time failures of clusters that were begun before the last known failure count as the same failure.
const oneMoment = time.Minute

// health is how the creation of a pool's clusters went lately.
type health struct {
	hivev1.ClusterPoolProvisioning
	*timer
	spec    *hivev1.ClusterPoolSpec
	sources string
}

func healthOf(s Snapshot, t *timer) health {
	pool := s.Pool
	h := health{timer: t, spec: &pool.Spec, sources: s.Sources}
	if pool.Status.Provisioning != nil {
		h.ClusterPoolProvisioning = *pool.Status.Provisioning.DeepCopy()
	}
	h.correctClock()
	return h
}

// correctClock has a failure that the status puts into the future take place now: the clock of its writer was wrong. Else nothing would be created until then, and further failures would
// count as part of it.
func (h *health) correctClock() {
	if last := h.LastFailureTime; last == nil || !last.After(h.now.Add(oneMoment)) {
		return
	}
	h.LastFailureTime = new(metav1.NewTime(h.now))
	h.NextAttemptTime = new(metav1.NewTime(h.now.Add(delay(h.ConsecutiveFailures))))
}

// fail counts a cluster that broke. It is called once per cluster, in the same ticket that records its deletion. Clusters that were begun together break of one cause: what was begun before
// the last failure was known, and broke at about that time, is part of that failure.
func (h *health) fail(namespace string, begun time.Time, f Failure) {
	if last := h.LastFailureTime; last != nil && h.ConsecutiveFailures > 0 && !begun.After(last.Time) && f.At.Before(last.Add(oneMoment)) {
		return
	}
	h.ConsecutiveFailures++
	h.LastFailureCluster = namespace
	h.LastFailureReason = cut(f.Reason, 1024)
	h.LastFailureMessage = cut(f.Message, 2048)
	h.LastFailureTime = new(metav1.NewTime(h.now))
	h.NextAttemptTime = new(metav1.NewTime(h.now.Add(delay(h.ConsecutiveFailures))))
	h.SpecHash = Recipe(*h.spec)
}

func delay(failures int32) time.Duration {
	if failures > 8 {
		return longestDelay
	}
	return min(longestDelay, firstDelay<<max(0, failures-1))
}

// learnFromOutcomes forgets failures as soon as a cluster was installed after the last of them. One that says that it will be, which was installed while the clock was ahead, tells nothing.
func (h *health) learnFromOutcomes(members []member) {
	if h.LastFailureTime == nil {
		return
	}
	for _, m := range members {
		if m.InstalledAt.After(h.LastFailureTime.Time) && !m.InstalledAt.After(h.now.Add(oneMoment)) && m.state != broken {
			h.ClusterPoolProvisioning = hivev1.ClusterPoolProvisioning{}
			return
		}
	}
}

// learnFromChanges tries at once what may work now: new clusters are made of something else than the one that broke last, or what they lacked is there again.
func (h *health) learnFromChanges(s Snapshot) {
	last := h.LastFailureTime
	if last == nil {
		return
	}
	lacked := hivev1.IsConditionTrue(s.Pool.Status.Conditions, hivev1.ClusterPoolMissingDependencies)
	switch {
	case h.SpecHash != "" && h.SpecHash != Recipe(*h.spec), s.Changed.After(last.Time), lacked && len(s.Missing) == 0:
		h.ClusterPoolProvisioning = hivev1.ClusterPoolProvisioning{}
	}
}

// allows is how many clusters may be created after what went wrong so far, with as many as are installing.
func (h *health) allows(installing int) int {
	if h.ConsecutiveFailures == 0 || h.NextAttemptTime == nil {
		return math.MaxInt
	}
	if next := h.NextAttemptTime.Time; h.now.Before(next) {
		h.wakeAt(next)
		return 0
	}
	if h.ConsecutiveFailures < breakerThreshold {
		return math.MaxInt
	}
	return max(0, 1-installing)
}

// breaker is the state of the circuit breaker.
func (h *health) breaker() hivev1.CircuitBreakerState {
	switch {
	case h.ConsecutiveFailures < breakerThreshold:
		return hivev1.CircuitBreakerClosed
	case h.NextAttemptTime != nil && h.now.Before(h.NextAttemptTime.Time):
		return hivev1.CircuitBreakerOpen
	}
	return hivev1.CircuitBreakerHalfOpen
}

// status is what the status says about installing; nil as long as nothing went wrong.
func (h *health) status() *hivev1.ClusterPoolProvisioning {
	if h.ConsecutiveFailures == 0 {
		return nil
	}
	out := h.ClusterPoolProvisioning
	out.CircuitBreaker = h.breaker()
	out.SourcesHash = h.sources
	return &out
}
