// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

const (
	// listedAfter is how long a machine waits for what comes by itself before it is listed. Most become hosts sooner, and cost no writes.
	listedAfter = PatienceTime
	// listSize bounds the changes of the list in one pass; the rest follows.
	listSize = 250
	// nextList is when it follows.
	nextList = time.Second
)

// Listed is a machine in the list of those that are not hosts.
type Listed struct {
	Verdict
	// Since is when the machine was first seen to wait, or to be refused for this reason.
	Since time.Time
}

// Listing is how the list has to change.
type Listing struct {
	Write []Listed
	// Remove are nodes.
	Remove []string
	// Waits says, by node, since when each machine that is not listed yet has its reason to wait; the next pass needs it.
	Waits map[string]time.Time
	// RequeueAfter is when time alone changes the list; 0 means never.
	RequeueAfter time.Duration
}

// List compares the machines that are not hosts with those that are listed, by node.
func List(now time.Time, verdicts []Verdict, present map[string]Listed, waits map[string]time.Time) Listing {
	l := Listing{Waits: map[string]time.Time{}}
	named := make(map[string]bool, len(verdicts))
	for _, v := range verdicts {
		named[v.Node] = true
		was, listed := present[v.Node]
		since, waited := waits[v.Node]
		if !waited {
			since = now
		}
		switch {
		case listed && was.Reason == v.Reason && was.Waiting == v.Waiting:
			since = was.Since
		case passing(v) && now.Sub(since) < listedAfter:
			l.Waits[v.Node] = since
			l.wake(listedAfter - now.Sub(since))
			continue
		}
		if next := (Listed{Verdict: v, Since: since}); !listed || next.Verdict != was.Verdict {
			l.Write = append(l.Write, next)
			if len(l.Write) > listSize {
				l.Waits[v.Node] = since
			}
		}
	}
	for node := range present {
		if !named[node] {
			l.Remove = append(l.Remove, node)
		}
	}
	slices.SortFunc(l.Remove, strings.Compare)
	if len(l.Write) > listSize || len(l.Write)+len(l.Remove) > listSize {
		l.Write = l.Write[:min(len(l.Write), listSize)]
		l.Remove = l.Remove[:min(len(l.Remove), listSize-len(l.Write))]
		l.wake(nextList)
	}
	return l
}

func (l *Listing) wake(after time.Duration) {
	if l.RequeueAfter == 0 || after < l.RequeueAfter {
		l.RequeueAfter = after
	}
}

// passing reports whether a machine waits for what usually comes by itself, soon.
func passing(v Verdict) bool {
	switch v.Reason {
	case metal3v1.WaitingForPorts, metal3v1.WaitingForInventory, metal3v1.WaitingForReading, metal3v1.WaitingForRate, metal3v1.WaitingForNode,
		metal3v1.WaitingForCreation:
		return v.Waiting
	default:
		return false
	}
}
