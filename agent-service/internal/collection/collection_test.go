// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package collection

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMemoryIsTakenWhereItSavesTime(t *testing.T) {
	const mega = 1 << 20
	for name, c := range map[string]struct {
		pace   pace
		before uint64
		want   int
	}{
		"nothing yet":                             {pace{0, 0, 0, 0}, spare, 400},
		"a small site begins with a burst":        {pace{10 * mega, 96 * mega, time.Second, 10 * time.Millisecond}, spare, 400},
		"1,000 hosts that poll":                   {pace{48 * mega, 24 * mega, 40 * time.Second, 25 * time.Millisecond}, calm, 50},
		"1,000 hosts that register":               {pace{48 * mega, 96 * mega, time.Second, 25 * time.Millisecond}, calm, 200},
		"1,000 hosts just after that":             {pace{48 * mega, 24 * mega, 40 * time.Second, 25 * time.Millisecond}, spare, 100},
		"10,000 hosts that poll":                  {pace{200 * mega, 150 * mega, 30 * time.Second, 150 * time.Millisecond}, 0, 70},
		"10,000 hosts that are bound":             {pace{256 * mega, 256 * mega, 2 * time.Second, 200 * time.Millisecond}, 0, 100},
		"10,000 hosts that are silent":            {pace{200 * mega, mega, 2 * time.Minute, 150 * time.Millisecond}, 0, 20},
		"much memory in use is not doubled twice": {pace{1 << 40, 1 << 40, time.Second, 10 * time.Second}, 1 << 50, 100},
		"a clock that stands still":               {pace{48 * mega, 24 * mega, 0, 25 * time.Millisecond}, calm, 200},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, percent(c.pace.inUse, c.pace.room(c.before))) })
	}
}

func TestEachCollectionIsFollowedByTheChoiceForTheNext(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	now := func() int {
		is := debug.SetGCPercent(100)
		debug.SetGCPercent(is)
		return is
	}
	Adapt()
	for _, megabytes := range []int{300, 0, 300} {
		used := make([]byte, megabytes<<20)
		want := map[int]int{0: most, 300: 20}[megabytes]
		require.Eventually(t, func() bool {
			runtime.GC()
			return now() == want
		}, time.Minute, time.Millisecond, "%d MiB are in use", megabytes)
		runtime.KeepAlive(used)
	}
}
