// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package truncate_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/apis/truncate"
)

func TestTextsAreCutBetweenCharacters(t *testing.T) {
	assert.Equal(t, "short", truncate.To("short", 5))
	assert.Equal(t, "aé…", truncate.To("aéü and more", 7), "half of ü goes")
	note := truncate.Note(strings.Repeat("é", 1000))
	assert.LessOrEqual(t, len(note), 1024)
	assert.True(t, utf8.ValidString(note))
	assert.True(t, strings.HasSuffix(note, "é…"))
}
