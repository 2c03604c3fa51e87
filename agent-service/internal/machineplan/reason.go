// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machineplan

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// obstacle is why a machine cannot be taken: the first that holds.
type obstacle int

const (
	eligible obstacle = iota
	deleting
	bound
	reserved
	releasing
	forbidden
	silent
	notWorker
	tooSmall
	notApproved
	notValid
	noAddress
	obstacles
)

func ofMachine(pool Pool, m *Machine) obstacle {
	switch {
	case m.Deleting:
		return deleting
	case m.Bound:
		return bound
	case m.Reserved:
		return reserved
	case !m.SilentSince.IsZero():
		return silent
	case !m.Free:
		return releasing
	case m.Forbidden != "":
		return forbidden
	case !m.Worker:
		return notWorker
	case m.Size.lacks(pool.Minimum) != "":
		return tooSmall
	case !m.Approved:
		return notApproved
	case !m.Valid:
		return notValid
	case m.NoAddress != "":
		return noAddress
	}
	return eligible
}

// reason counts why machines cannot be taken, such as "12 Agents match; 7 bound, 2 not approved, 1 silent since 4m, 2 too small: 8 of 32 GiB".
func reason(pool Pool, machines []Machine, now time.Time) string {
	noun := cmp.Or(pool.Noun, "Agent")
	if len(machines) == 0 {
		return cmp.Or(pool.Refused, "no "+noun+" matches")
	}
	var count [obstacles]int
	var oldest time.Time
	var largest *Machine
	because, without := "", ""
	for i := range machines {
		m := &machines[i]
		o := ofMachine(pool, m)
		count[o]++
		switch {
		case o == silent && (oldest.IsZero() || m.SilentSince.Before(oldest)):
			oldest = m.SilentSince
		case o == tooSmall && (largest == nil || m.Size.compare(largest.Size) > 0):
			largest = m
		case o == forbidden:
			because = m.Forbidden
		case o == noAddress:
			without = m.NoAddress
		}
	}
	var said []string
	for _, one := range []struct {
		of   obstacle
		text func() string
	}{
		{bound, func() string { return "bound" }},
		{reserved, func() string { return "reserved" }},
		{deleting, func() string { return "being deleted" }},
		{releasing, func() string { return "not free yet" }},
		{forbidden, func() string { return "not for this cluster: " + because }},
		{notWorker, func() string { return "not for workers" }},
		{notApproved, func() string { return "not approved" }},
		{silent, func() string { return "silent since " + coarse(now.Sub(oldest)) }},
		{notValid, func() string { return "with failing validations" }},
		{noAddress, func() string { return "without an address: " + without + " has none free" }},
		{tooSmall, func() string { return "too small: " + largest.Size.lacks(pool.Minimum) }},
		{eligible, func() string { return "free" }},
	} {
		if count[one.of] > 0 {
			said = append(said, fmt.Sprintf("%d %s", count[one.of], one.text()))
		}
	}
	match := noun + "s match"
	if len(machines) == 1 {
		match = noun + " matches"
	}
	return fmt.Sprintf("%d %s; %s", len(machines), match, strings.Join(said, ", "))
}

// coarse is a duration in steps, so that a sentence with it does not change all the time.
func coarse(d time.Duration) string {
	text := "less than 1m"
	for _, step := range []struct {
		least time.Duration
		text  string
	}{
		{time.Minute, "1m"}, {2 * time.Minute, "2m"}, {4 * time.Minute, "4m"}, {10 * time.Minute, "10m"}, {30 * time.Minute, "30m"},
		{time.Hour, "1h"}, {4 * time.Hour, "4h"}, {12 * time.Hour, "12h"}, {24 * time.Hour, "1d"}, {7 * 24 * time.Hour, "7d"},
	} {
		if d >= step.least {
			text = step.text
		}
	}
	return text
}
