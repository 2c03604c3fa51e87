// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"strings"

	"github.com/muster-io/muster/apis/faultinject"
)

// writes counts the writes of a client, leases and events aside, and can end them.
type writes struct{ *faultinject.Injector }

// countWrites counts only.
func countWrites() writes { return writes{faultinject.Never()} }

func (w writes) count(next http.RoundTripper) http.RoundTripper {
	return w.Transport(next, faultinject.IsWrite)
}

func (w writes) total() int { return len(w.Writes()) }

// of counts the writes whose path contains a text.
func (w writes) of(text string) (n int) {
	for _, line := range w.Writes() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (w writes) String() string { return strings.Join(w.Writes(), "\n") }
