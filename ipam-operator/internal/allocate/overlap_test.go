// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"testing"

	"github.com/stretchr/testify/assert"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func TestOverlap(t *testing.T) {
	of := func(prefix string, excluded []ipamv1.AddressSpan, entries ...ipamv1.Pool) *Layout {
		s := spec(entries...)
		s.NamePrefix, s.ExcludedAddresses = prefix, excluded
		return Parse(&s, ipamv1.RandomAllocation)
	}
	span := func(first, last string) ipamv1.Pool { return ipamv1.Pool{Start: ip(first), End: ip(last)} }
	ours := of("ours", nil, span("fd00::1", "fd00::9"), span("10.0.0.40", "10.0.0.49"), span("10.0.0.10", "10.0.0.19"))
	for name, test := range map[string]struct {
		theirs *Layout
		want   string // empty: none
	}{
		"the lowest addresses of both are named": {of("theirs", nil, span("10.0.0.48", "10.0.0.60"), span("10.0.0.15", "10.0.0.16")), "10.0.0.15-10.0.0.16"},
		"one address is enough":                  {of("theirs", nil, span("fd00::9", "fd00::ff")), "fd00::9"},
		"ranges that touch do not overlap":       {of("theirs", nil, span("10.0.0.20", "10.0.0.39"), span("10.0.0.1", "10.0.0.9")), ""},
		"excluded addresses are not handed out":  {of("theirs", []ipamv1.AddressSpan{"10.0.0.10-10.0.0.19"}, span("10.0.0.1", "10.0.0.30")), ""},
		"one namePrefix shares its locks":        {of("ours", nil, span("10.0.0.10", "10.0.0.19")), ""},
		"a pool without addresses":               {of("theirs", nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Overlap(ours, test.theirs)
			mirrored, _ := Overlap(test.theirs, ours)
			assert.Equal(t, got, mirrored)
			if assert.Equal(t, test.want != "", ok) && ok {
				assert.Equal(t, test.want, got.String())
			}
		})
	}
}
