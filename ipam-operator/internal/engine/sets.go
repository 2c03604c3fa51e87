// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"

// Serves reports whether an IPClaim names a pool of a kind that is served, or chooses one.
func Serves(claim *ipamv1.IPClaim) bool {
	return claim.Spec.PoolSelector != nil || servedReference(claim.Spec.Pool)
}
