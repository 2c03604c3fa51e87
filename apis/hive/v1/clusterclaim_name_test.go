// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNamesOfClaimsAreValid(t *testing.T) {
	for name, c := range map[string]struct{ pool, start string }{
		"a pool with a short name":                    {"blue", "blue-"},
		"a pool whose name is cut":                    {strings.Repeat("a", 63), strings.Repeat("a", 57) + "-"},
		"a pool whose name is cut behind a dot":       {strings.Repeat("a", 56) + ".b", strings.Repeat("a", 56) + "-"},
		"a pool whose name is cut between two dashes": {strings.Repeat("a", 55) + "---b", strings.Repeat("a", 55) + "-"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := NewClaimName(c.pool)
			assert.True(t, strings.HasPrefix(claim, c.start), claim)
			assert.Equal(t, c.start, ClaimNamePrefix(c.pool))
			assert.Len(t, claim, len(c.start)+5)
			assert.Empty(t, validation.IsDNS1123Subdomain(claim))
			assert.LessOrEqual(t, len(claim), validation.LabelValueMaxLength)
			assert.NotEqual(t, claim, NewClaimName(c.pool))
		})
	}
}
