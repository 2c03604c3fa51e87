// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPollsWithoutAnAnswerAreMissed(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	poll := func(host string, seconds int, took time.Duration) instructed {
		return instructed{Host: host, At: begin.Add(time.Duration(seconds) * time.Second).UnixNano(), Took: took}
	}
	all := []instructed{
		poll("a", -30, 9), poll("b", -10, 9), poll("a", 31, 1), poll("b", 50, 2), poll("a", 90, 3),
		poll("b", 171, 4),                    // one at 110 had no answer
		poll("a", 150, 5), poll("b", 230, 6), // and none of a's after 150 had, of which two were due
		poll("b", 301, 9),
	}
	took, missing := answered(all, begin, begin.Add(5*time.Minute))
	assert.ElementsMatch(t, []time.Duration{1, 2, 3, 4, 5, 6}, took, "polls before and after do not count")
	assert.Equal(t, 3, missing)
}
