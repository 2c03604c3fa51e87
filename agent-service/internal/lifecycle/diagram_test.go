// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Every state is drawn in exactly one diagram.
func TestEveryStateBelongsToOnePhase(t *testing.T) {
	var drawn []State
	for _, p := range phases {
		drawn = append(drawn, p.states...)
	}
	assert.ElementsMatch(t, States, drawn)
}
