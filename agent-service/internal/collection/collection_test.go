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

func TestMuchMemoryInUseIsNotDoubledTwice(t *testing.T) {
	for name, c := range map[string]struct {
		inUse uint64
		want  int
	}{
		"nothing yet":  {0, 400},
		"a small site": {20 << 20, 400},
		"1,000 hosts":  {48 << 20, 200},
		"10,000 hosts": {256 << 20, 100},
		"more":         {1 << 40, 100},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, percent(c.inUse)) })
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
		want := map[int]int{0: most, 300: least}[megabytes]
		require.Eventually(t, func() bool {
			runtime.GC()
			return now() == want
		}, time.Minute, time.Millisecond, "%d MiB are in use", megabytes)
		runtime.KeepAlive(used)
	}
}
