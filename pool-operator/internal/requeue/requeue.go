// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requeue compares the times after which a pass runs again. It is pure.
package requeue

import "time"

// Sooner returns the shorter of two delays, of which 0 means never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
