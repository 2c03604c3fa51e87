// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/muster-io/muster/apis/truncate"
)

// Recorder returns a recorder of events that cuts what the API server would refuse the event for: a note that is too long, such as one with the error of another system.
func Recorder(recorder events.EventRecorder) events.EventRecorder { return cutting{recorder} }

type cutting struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (c cutting) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	c.EventRecorder.Eventf(regarding, related, eventtype, reason, action, "%s", truncate.Note(fmt.Sprintf(note, args...)))
}
