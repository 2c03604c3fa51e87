// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResultsOfGoBenchmarksAreRead(t *testing.T) {
	results, err := parseGoBenchmark([]byte(`goos: linux
BenchmarkPick/10.0.0.0/16/taken=100/random-4         	 9876543	       121.5 ns/op	       0 B/op	       0 allocs/op
BenchmarkPick/fd00::/64/taken=65000/sequential   	 1000	      2100 ns/op	  12.0 MB/s	       16 B/op	       3 allocs/op
PASS
`))
	require.NoError(t, err)
	assert.Equal(t, []GoResult{
		{Name: "Pick/10.0.0.0/16/taken=100/random", NanosecondsPerOp: 121.5},
		{Name: "Pick/fd00::/64/taken=65000/sequential", NanosecondsPerOp: 2100, AllocsPerOp: 3},
	}, results)
	_, err = parseGoBenchmark([]byte("PASS\n"))
	require.Error(t, err)
}
