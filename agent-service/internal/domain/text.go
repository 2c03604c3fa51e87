// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"regexp"
	"strings"
)

// Truncate cuts a text to n bytes, with … at the end.
func Truncate(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

var addresses = regexp.MustCompile(`([a-z][a-z0-9+.-]*://)(?:[^/\s"@]*@)?([^\s"?#]*)(?:[?#][^\s"]*)?`)

// WithoutSecrets leaves out what may be one in the addresses that a text names: the user, and what comes after the path.
func WithoutSecrets(s string) string { return addresses.ReplaceAllString(s, "$1$2") }
