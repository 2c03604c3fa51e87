// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package needtest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/apis/needtest"
)

// ended records how a test ended. Skip and Fatal return, so that the test of this package goes on.
type ended struct {
	testing.TB
	how, sentence string
}

func (e *ended) Helper() {}

func (e *ended) Skip(args ...any) { e.how, e.sentence = "skipped", args[0].(string) }

func (e *ended) Fatal(args ...any) { e.how, e.sentence = "failed", args[0].(string) }

func TestATestWithoutItsPartIsSkippedAndFailsInCI(t *testing.T) {
	const sentence = "there is no lathe: install one"
	for name, test := range map[string]struct {
		ci   string
		need func(testing.TB)
		how  string
	}{
		"there":           {"true", func(t testing.TB) { needtest.Part(t, true, sentence) }, ""},
		"missing":         {"", func(t testing.TB) { needtest.Part(t, false, sentence) }, "skipped"},
		"missing in CI":   {"true", func(t testing.TB) { needtest.Part(t, false, sentence) }, "failed"},
		"a file":          {"true", func(t testing.TB) { needtest.File(t, "needtest.go", sentence) }, ""},
		"no file":         {"", func(t testing.TB) { needtest.File(t, "lathe", sentence) }, "skipped"},
		"no file in CI":   {"true", func(t testing.TB) { needtest.File(t, "lathe", sentence) }, "failed"},
		"no error":        {"true", func(t testing.TB) { needtest.NoError(t, nil) }, ""},
		"an error":        {"", func(t testing.TB) { needtest.NoError(t, errors.New(sentence)) }, "skipped"},
		"an error, in CI": {"true", func(t testing.TB) { needtest.NoError(t, errors.New(sentence)) }, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CI", test.ci)
			e := &ended{TB: t}
			test.need(e)
			assert.Equal(t, test.how, e.how)
			if test.how != "" {
				assert.Equal(t, sentence, e.sentence)
			}
		})
	}
}
