// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
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

func (p *pass) countRunnable() int { return p.count(installing, standby, ready) }

// setPower lets the oldest unclaimed clusters run and the others hibernate. A power state that somebody changed by hand is put back.
func (p *pass) setPower() {
	var fleet []member
	for _, m := range p.members {
		if runnable(m) {
			fleet = append(fleet, m)
		}
	}
	slices.SortStableFunc(fleet, func(a, b member) int {
		if a.planned != b.planned {
			if a.planned {
				return 1
			}
			return -1
		}
		return byAge(a, b)
	})
	for i, m := range fleet {
		want := power(i < p.runningTarget())
		if m.planned || m.PowerPaused || effective(m.Power) == want {
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
