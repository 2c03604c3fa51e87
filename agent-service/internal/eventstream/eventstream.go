// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eventstream writes server-sent events, as browsers read them.
package eventstream

import (
	"maps"
	"net/http"
)

// Begin answers with the headers of a stream, which nginx and proxies that know its header hand on as it comes.
func Begin(w http.ResponseWriter) {
	maps.Copy(w.Header(), http.Header{"Content-Type": {"text/event-stream"}, "Cache-Control": {"no-store"}, "X-Accel-Buffering": {"no"}})
	w.WriteHeader(http.StatusOK)
}

// Event is an event that has nothing but its name.
func Event(name string) string { return "event: " + name + "\ndata:\n\n" }
