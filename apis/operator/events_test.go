// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/muster-io/muster/apis/operator"
)

// An API server refuses an event whose note has more than 1,024 bytes, and then there is none.
func TestNotesOfEventsAreCut(t *testing.T) {
	recorded := events.NewFakeRecorder(2)
	recorder := operator.Recorder(recorded)
	recorder.Eventf(&corev1.Pod{}, nil, "Warning", "Failed", "Deploy", "The deployment failed: %s", strings.Repeat("é 100% ", 200))
	note := strings.TrimPrefix(<-recorded.Events, "Warning Failed ")
	assert.True(t, strings.HasPrefix(note, "The deployment failed: é 100% é"), note)
	assert.LessOrEqual(t, len(note), 1024)
	recorder.Eventf(&corev1.Pod{}, nil, "Normal", "Done", "Deploy", "all of it")
	assert.Equal(t, "Normal Done all of it", <-recorded.Events)
}
