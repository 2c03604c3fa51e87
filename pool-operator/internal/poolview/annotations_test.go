// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolview_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

func TestBooleansOfAnnotations(t *testing.T) {
	const key = hivev1.AnnotationProtectedDelete
	for value, want := range map[string]struct{ read, noted bool }{
		"true": {true, false}, "True": {true, false}, "TRUE": {true, false}, "1": {true, false}, "t": {true, false}, "T": {true, false},
		"false": {}, "False": {}, "0": {}, "f": {},
		"yes": {false, true}, "on": {false, true}, "": {false, true}, " true": {false, true}, strings.Repeat("x", 1000): {false, true}, //nolint:gocritic // the space is the case
	} {
		annotations := map[string]string{key: value, "other.example.com/key": "yes"}
		assert.Equal(t, want.read, hivev1.IsTrue(annotations, key), value)
		note := poolview.UnreadableNote(annotations)
		assert.Equal(t, want.noted, strings.HasPrefix(note, "; annotation "+key+` is "`), value)
		assert.Less(t, len(note), 200, "a long value does not fill the message")
	}
	assert.Empty(t, poolview.UnreadableNote(nil))
}
