// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import hivev1 "github.com/muster-io/muster/apis/hive/v1"

// setPower lets the oldest unclaimed clusters run and the others hibernate; while stale ones are replaced, their successors come first. A power state that a user changed by hand is put back.
func (p *pass) setPower() {
	fleet := p.fleet.runningOrder()
	target := p.quota.runningTarget()
	up := 0
	for i, m := range fleet {
		if i < target && m.state == ready {
			up++
		}
	}
	for i, m := range fleet {
		running := i < target
		if !running && p.fleet.stale(m) && m.state == ready && up < target {
			// It runs on until enough of those run that are to.
			running = true
			up++
		}
		want := power(running)
		if m.planned || m.PowerPaused || m.Paused || effective(m.Power) == want {
			continue
		}
		p.ticket.act(SetPower{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Power: want, Why: WhyRunningCount})
	}
}

// effective is what a power state means: an empty one is Running.
func effective(s hivev1.PowerState) hivev1.PowerState {
	if s == "" {
		return hivev1.PowerStateRunning
	}
	return s
}
