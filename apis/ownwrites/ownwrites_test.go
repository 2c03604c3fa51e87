// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ownwrites_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/apis/ownwrites"
)

func TestAnObjectIsAheadUntilACacheShowsTheWrite(t *testing.T) {
	for name, c := range map[string]struct {
		written, cached string
		want            bool
	}{
		"nothing was written":                 {cached: "7"},
		"the cache shows an older version":    {written: "10", cached: "9", want: true},
		"the cache shows the write":           {written: "10", cached: "10"},
		"the cache shows a later write":       {written: "10", cached: "11"},
		"the cached version is no number":     {written: "10", cached: "x"},
		"the version written is no number":    {written: "x", cached: "9"},
		"the object has no cached version":    {written: "10", cached: ""},
		"the version written has more digits": {written: "18446744073709551616", cached: "9", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			var m ownwrites.Memory[string]
			if c.written != "" {
				m.Wrote("a", c.written)
			}
			assert.Equal(t, c.want, m.Ahead("a", c.cached))
			assert.False(t, m.Ahead("b", "1"), "another object")
		})
	}
}

func TestAWriteThatACacheShowedIsForgotten(t *testing.T) {
	var m ownwrites.Memory[string]
	m.Wrote("a", "10")
	assert.False(t, m.Ahead("a", "10"))
	assert.False(t, m.Ahead("a", "9"), "an informer that starts anew on a server that is behind must not stop the object for ever")
	m.Wrote("a", "12")
	m.Forget("a")
	assert.False(t, m.Ahead("a", "11"), "the object is gone")
}
