// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// SpecOf is what a runtime is told about a cluster.
var SpecOf = specOf

// RemoveOrphans does what an operator does when it starts.
func RemoveOrphans(ctx context.Context, r *Reconciler) error {
	return removeOrphans(ctx, r.Deps, func(provision.ClusterRef) bool { return true })
}
