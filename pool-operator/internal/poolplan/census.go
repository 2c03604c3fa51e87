// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// state is what a cluster counts as; each cluster has exactly one.
type state int

const (
	// installing: unclaimed and not installed yet, or about to be created.
	installing state = iota
	// standby: unclaimed, installed and not running.
	standby
	// ready: unclaimed, installed and running.
	ready
	// broken: unclaimed, and installation stopped or the cluster does not resume.
	broken
	// claimed: recorded for a claim, or taken by one that has not recorded itself yet.
	claimed
	// released: marked to be removed.
	released
	// deleting: being deleted, or about to be.
	deleting
)

// member is a cluster of the pool, or one that is about to be.
type member struct {
	Cluster
	state   state
	failure Failure
	// planned says that the cluster has not been seen yet.
	planned bool
}

func (m member) unclaimed() bool {
	switch m.state {
	case installing, standby, ready, broken:
		return true
	case claimed, released, deleting:
		return false
	}
	return false
}

// takeCensus sorts the clusters and gives each its state, operations included: what was decided counts as done.
func (p *pass) takeCensus() {
	named := map[string]bool{}
	for _, c := range p.in.Claims {
		if c.Namespace != "" {
			named[c.Namespace] = true
		}
	}
	doomed := map[string]bool{}
	for _, op := range p.pool.Status.Operations {
		if op.Kind == hivev1.OperationDelete {
			doomed[op.Namespace+"/"+string(op.UID)] = true
		}
	}
	p.pending = p.countPending()
	seen := map[string]bool{}
	for _, c := range sorted(p.in.Clusters) {
		seen[c.Namespace] = true
		m := member{Cluster: c}
		m.state, m.failure = p.stateOf(c, named[c.Namespace], doomed[c.Namespace+"/"+string(c.UID)])
		p.members = append(p.members, m)
	}
	for _, op := range p.pool.Status.Operations {
		if op.Kind == hivev1.OperationCreate && !seen[op.Namespace] {
			p.members = append(p.members, p.unseen(op, named[op.Namespace]))
		}
	}
}

// unseen is the cluster that an operation creates and that is not in view.
func (p *pass) unseen(op hivev1.ClusterPoolOperation, named bool) member {
	m := member{planned: true, state: installing, Cluster: Cluster{
		Namespace: op.Namespace, Name: op.Namespace, ClusterName: op.ClusterName, Version: p.version, Created: p.now, Power: power(op.Running),
	}}
	if named {
		m.state = claimed
	}
	return m
}

func (p *pass) stateOf(c Cluster, named, doomed bool) (state, Failure) {
	taken := c.ClaimName != "" || c.ClaimUID != "" || named
	switch {
	case c.Deleting:
		return deleting, Failure{}
	case c.Marked:
		if doomed {
			return deleting, Failure{}
		}
		return released, Failure{}
	case taken:
		return claimed, Failure{}
	case doomed:
		return deleting, Failure{}
	}
	if f := p.failureOf(c); f != nil {
		return broken, *f
	}
	switch {
	case !c.Installed:
		return installing, Failure{}
	case c.ObservedPower == hivev1.PowerStateRunning:
		return ready, Failure{}
	}
	return standby, Failure{}
}

// failureOf says why an unclaimed cluster is broken: it will not be installed, or it has been resuming for longer than the pool allows.
func (p *pass) failureOf(c Cluster) *Failure {
	if c.InstallStopped != nil {
		return c.InstallStopped
	}
	config := p.spec.HibernationConfig
	if config == nil || config.ResumeTimeout == nil || config.ResumeTimeout.Duration <= 0 || !resuming(c) {
		return nil
	}
	deadline := c.ResumingSince.Add(config.ResumeTimeout.Duration)
	if p.now.Before(deadline) {
		p.wakeAt(deadline)
		return nil
	}
	return &Failure{Reason: "ResumeTimedOut", Message: "the cluster should run and did not within " + config.ResumeTimeout.Duration.String()}
}

func resuming(c Cluster) bool {
	return c.Installed && c.Power == hivev1.PowerStateRunning && !c.ResumingSince.IsZero() &&
		c.ObservedPower != hivev1.PowerStateRunning && c.ObservedPower != hivev1.PowerStateHibernating
}

// countPending counts the claims that wait for a cluster. A claim that has taken one, or whose UID a cluster records, waits no more; one whose cluster records another
// claim waits again.
func (p *pass) countPending() int {
	recorded := map[string]bool{}
	at := map[string]Cluster{}
	for _, c := range p.in.Clusters {
		at[c.Namespace] = c
		if c.ClaimUID != "" {
			recorded[string(c.ClaimUID)] = true
		}
	}
	n := 0
	for _, claim := range p.in.Claims {
		switch {
		case claim.Deleting, recorded[string(claim.UID)]:
		case p.expired(claim):
		case claim.Namespace == "", lost(at[claim.Namespace], claim):
			n++
		}
	}
	return n
}

func (p *pass) expired(claim Claim) bool {
	if claim.Namespace != "" || claim.Expires.IsZero() {
		return false
	}
	if p.now.Before(claim.Expires) {
		p.wakeAt(claim.Expires)
		return false
	}
	return true
}

// lost says whether the cluster that the claim took records another claim.
func lost(c Cluster, claim Claim) bool {
	switch {
	case c.ClaimUID != "":
		return c.ClaimUID != claim.UID
	case c.ClaimName != "":
		return c.ClaimName != claim.Name
	}
	return false
}

func (p *pass) count(states ...state) int {
	n := 0
	for _, m := range p.members {
		if slices.Contains(states, m.state) {
			n++
		}
	}
	return n
}

func (p *pass) countUnclaimed() int { return p.count(installing, standby, ready, broken) }

// power is the power state of a cluster that runs or does not.
func power(running bool) hivev1.PowerState {
	if running {
		return hivev1.PowerStateRunning
	}
	return hivev1.PowerStateHibernating
}

// cut shortens s to at most n bytes, without cutting a character in two.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// byAge orders members by age, oldest first, with a total order.
func byAge(a, b member) int {
	return cmp.Or(a.Created.Truncate(time.Second).Compare(b.Created.Truncate(time.Second)), cmp.Compare(a.Namespace, b.Namespace))
}
