// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package query_test

import (
	"context"
	"encoding/json"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/query"
)

func TestMain(m *testing.M) {
	if !query.Serve() {
		os.Exit(m.Run())
	}
}

const inventory = `{"cpu":{"count":16},"memory":{"physicalBytes":68719476736},"hostname":"n"}`

func TestAnswers(t *testing.T) {
	var p query.Process
	for text, want := range map[string]struct {
		matches bool
		failed  string
	}{
		".cpu.count >= 16":                       {matches: true},
		".cpu.count > 16":                        {},
		".memory.physicalBytes == 68719476736":   {matches: true},
		".hostname":                              {failed: query.ErrNotBoolean.Error()},
		"empty":                                  {failed: query.ErrNotBoolean.Error()},
		"env | length == 0":                      {matches: true},
		`error("no")`:                            {failed: "no"},
		".[":                                     {failed: "the query cannot be read"},
		"true, false":                            {matches: true},
		"[range(100000)] | add > 1 and . != [1]": {matches: true},
	} {
		matches, failed, err := p.Matches(t.Context(), text, json.RawMessage(inventory))
		require.NoError(t, err)
		assert.Equal(t, want.matches, matches, text)
		if want.failed == "" {
			require.NoError(t, failed, text)
		} else {
			require.ErrorContains(t, failed, want.failed, text)
		}
	}
}

// TestAQueryTakesNoMoreThanItMay has queries whose last step takes longer than anything lives, or more memory than there is, or both. The time is bounded, and so is the memory
// of the process that answers.
func TestAQueryTakesNoMoreThanItMay(t *testing.T) {
	var p query.Process
	for name, text := range map[string]string{
		"steps without end":     "def f: f; f",
		"a comparison":          "reduce range(60) as $i (0; [.,.]) | . == .",
		"a text":                "reduce range(60) as $i (0; [.,.]) | tojson | length > 0",
		"an array of numbers":   "[range(1e9)] | length > 0",
		"a doubled text":        `reduce range(40) as $i ("xx"; . + .) | length > 0`,
		"a doubled array":       "reduce range(40) as $i ([1]; . + .) | length > 0",
		"a large array":         "null | setpath([536870910]; 0) | length > 0",
		"a text many times":     `"x" * 268435455 | . + . | length > 0`,
		"a text between others": `[range(1e5) | tostring] | join("x" * 1e5) | length > 0`,
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			_, failed, err := p.Matches(t.Context(), text, json.RawMessage(inventory))
			require.NoError(t, err)
			require.ErrorIs(t, failed, query.ErrExceeded)
			assert.Less(t, time.Since(begun), 30*time.Second)

			matches, failed, err := p.Matches(t.Context(), ".cpu.count == 16", json.RawMessage(inventory))
			require.NoError(t, err)
			require.NoError(t, failed)
			assert.True(t, matches, "the next query is answered")
		})
	}
	var most syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_CHILDREN, &most))
	assert.Less(t, most.Maxrss, int64(512<<10), "KiB of the largest process")
}

func TestACallerThatGoesAwayIsNoFaultOfAQuery(t *testing.T) {
	var p query.Process
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, failed, err := p.Matches(ctx, "def f: f; f", json.RawMessage(inventory))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, failed)
}
