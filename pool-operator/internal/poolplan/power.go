// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"cmp"
	"slices"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// runningTarget is how many unclaimed clusters run: runningCount of them, but no more than size, and one for each claim that waits.
func (p *pass) runningTarget() int {
	return int(min(p.spec.RunningCount, p.spec.Size)) + p.pending
}

func runnable(m member) bool {
	switch m.state {
	case installing, standby, ready:
		return true
	case broken, claimed, released, deleting:
		return false
	}
	return false
}

// countCurrentRunnable counts the clusters that come before a new one when it is decided which run. Stale ones come after it.
func (p *pass) countCurrentRunnable() int {
	n := 0
	for _, m := range p.members {
		if runnable(m) && !p.stale(m) {
			n++
		}
	}
	return n
}

// setPower lets the oldest unclaimed clusters run and the others hibernate; while stale ones are replaced, their successors come first. A power state that a user changed by hand is put back.
func (p *pass) setPower() {
	var fleet []member
	for _, m := range p.members {
		if runnable(m) {
			fleet = append(fleet, m)
		}
	}
	slices.SortStableFunc(fleet, func(a, b member) int {
		return cmp.Or(boolsFirst(!p.stale(a), !p.stale(b)), boolsFirst(!a.planned, !b.planned), byAge(a, b))
	})
	target := p.runningTarget()
	up := 0
	for i, m := range fleet {
		if i < target && m.state == ready {
			up++
		}
	}
	for i, m := range fleet {
		running := i < target
		if !running && p.stale(m) && m.state == ready && up < target {
			// It runs on until enough of those run that are to.
			running = true
			up++
		}
		want := power(running)
		if m.planned || m.PowerPaused || m.Paused || effective(m.Power) == want {
			continue
		}
		p.act(SetPower{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Power: want, Why: WhyRunningCount})
	}
}

// effective is what a power state means: an empty one is Running.
func effective(s hivev1.PowerState) hivev1.PowerState {
	if s == "" {
		return hivev1.PowerStateRunning
	}
	return s
}
