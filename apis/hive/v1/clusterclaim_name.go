// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"crypto/rand"
	"strings"
)

const (
	// maxClaimName is the greatest length of a name, as of those that the API server generates.
	maxClaimName = 63
	// claimSuffix is the length of the random end of a name.
	claimSuffix = 5
)

// NewClaimName returns a name for a claim of a pool that has none yet: the name of the pool, as much of it as there is room for, and a random end. A client that names a claim
// before it creates it finds it again where the answer is lost, and makes one where it asks twice.
func NewClaimName(pool string) string {
	return ClaimNamePrefix(pool) + strings.ToLower(rand.Text()[:claimSuffix])
}

// ClaimNamePrefix returns the beginning of each name that NewClaimName makes for a pool.
func ClaimNamePrefix(pool string) string {
	start := pool[:min(len(pool), maxClaimName-claimSuffix-1)]
	return strings.TrimRight(start, ".-") + "-"
}
