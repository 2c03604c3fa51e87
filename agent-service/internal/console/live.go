// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/muster-io/muster/agent-service/internal/eventstream"
)

// streamURL is where pages get the stream of changes.
const streamURL = Base + "/stream"

// stream hands the API's stream of changes to the page, which reads itself again at each. Pages are not shown the comments by which the API says that a stream is alive:
// an event follows what came.
func stream(v *visit) error {
	response, err := accept(v.api.StreamChanges(v.r.Context()))
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	eventstream.Begin(v.w)
	control, buffer, alive := http.NewResponseController(v.w), make([]byte, 4<<10), []byte(eventstream.Event("alive"))
	if _, err := v.w.Write(alive); err != nil || control.Flush() != nil {
		return nil // the browser is gone
	}
	for {
		n, err := response.Body.Read(buffer)
		if n > 0 {
			sent := buffer[:n]
			if bytes.HasSuffix(sent, []byte("\n\n")) { // between two events
				sent = append(slices.Clone(sent), alive...)
			}
			if _, err := v.w.Write(sent); err != nil || control.Flush() != nil {
				return nil // the browser is gone
			}
		}
		if err != nil {
			return nil // the stream ended, and the browser asks again
		}
	}
}
