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

// fail counts a cluster that broke. It is called once per cluster, in the same ticket that records its deletion. Clusters that were begun together break of one cause: what was begun before
// the last failure was known, and broke at about that time, is part of that failure.
func (p *pass) fail(namespace string, begun time.Time, f Failure) {
	if last := p.health.LastFailureTime; last != nil && p.health.ConsecutiveFailures > 0 && !begun.After(last.Time) && f.At.Before(last.Add(oneMoment)) {
		return
	}
	p.health.ConsecutiveFailures++
	p.health.LastFailureCluster = namespace
	p.health.LastFailureReason = cut(f.Reason, 1024)
	p.health.LastFailureMessage = cut(f.Message, 2048)
	p.health.LastFailureTime = new(metav1.NewTime(p.now))
	p.health.NextAttemptTime = new(metav1.NewTime(p.now.Add(delay(p.health.ConsecutiveFailures))))
	p.health.SpecHash = Recipe(p.spec)
}

func delay(failures int32) time.Duration {
	if failures > 8 {
		return longestDelay
	}
	return min(longestDelay, firstDelay<<max(0, failures-1))
}

// learnFromOutcomes forgets failures as soon as a cluster was installed after the last of them.
func (p *pass) learnFromOutcomes() {
	if p.health.LastFailureTime == nil {
		return
	}
	for _, m := range p.members {
		if m.InstalledAt.After(p.health.LastFailureTime.Time) && m.state != broken {
			p.health = hivev1.ClusterPoolProvisioning{}
			return
		}
	}
}

// learnFromChanges tries at once what may work now: new clusters are made of something else than the one that broke last, or what they lacked is there again.
func (p *pass) learnFromChanges() {
	last := p.health.LastFailureTime
	if last == nil {
		return
	}
	lacked := hivev1.IsConditionTrue(p.pool.Status.Conditions, hivev1.ClusterPoolMissingDependencies)
	switch {
	case p.health.SpecHash != "" && p.health.SpecHash != Recipe(p.spec), p.in.Changed.After(last.Time), lacked && len(p.in.Missing) == 0:
		p.health = hivev1.ClusterPoolProvisioning{}
	}
}

// allowedByFailures is how many clusters may be created after what went wrong so far.
func (p *pass) allowedByFailures() int {
	if p.health.ConsecutiveFailures == 0 || p.health.NextAttemptTime == nil {
		return math.MaxInt
	}
	if next := p.health.NextAttemptTime.Time; p.now.Before(next) {
		p.wakeAt(next)
		return 0
	}
	if p.health.ConsecutiveFailures < breakerThreshold {
		return math.MaxInt
	}
	return max(0, 1-p.count(installing))
}

// breaker is the state of the circuit breaker.
func (p *pass) breaker() hivev1.CircuitBreakerState {
	switch {
	case p.health.ConsecutiveFailures < breakerThreshold:
		return hivev1.CircuitBreakerClosed
	case p.health.NextAttemptTime != nil && p.now.Before(p.health.NextAttemptTime.Time):
		return hivev1.CircuitBreakerOpen
	}
	return hivev1.CircuitBreakerHalfOpen
}

// provisioning is what the status says about installing; nil as long as nothing went wrong.
func (p *pass) provisioning() *hivev1.ClusterPoolProvisioning {
	if p.health.ConsecutiveFailures == 0 {
		return nil
	}
	out := p.health
	out.CircuitBreaker = p.breaker()
	return &out
}
