// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package truncate cuts texts to the lengths that the API server takes.
package truncate

import "strings"

// maxNote is how many bytes the note of an event may have (Event of events.k8s.io/v1). The API server refuses a longer one.
const maxNote = 1024

// To cuts a text that is longer than that many bytes, at least three, and ends it with … then. No character is cut in two.
func To(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes-len("…")], "") + "…"
}

// Note cuts a sentence that is too long for the note of an event.
func Note(sentence string) string { return To(sentence, maxNote) }
