// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// formerUID is the UID of the ClusterDeployment that an installed cluster was restored from, where the runtime still keeps the data of that one; else it is empty.
func (d Deps) formerUID(ctx context.Context, cluster *hivev1.ClusterDeployment) (types.UID, error) {
	refs, err := d.Runtime.List(ctx)
	if err != nil {
		return "", fmt.Errorf("looking for the data of hosted cluster %s: %w", refOf(cluster), err)
	}
	for _, ref := range refs {
		if ref.NamespacedName() != refOf(cluster).NamespacedName() || ref.UID == cluster.UID {
			continue
		}
		if is, err := d.isDataOf(ctx, ref, cluster); is || err != nil {
			return ref.UID, err
		}
	}
	return "", nil
}

// isDataOf reports whether what the runtime keeps under a reference is the data that the cluster was installed with. Its ID tells the data of a
// ClusterDeployment that was restored, and got another UID, from that of a namesake.
func (d Deps) isDataOf(ctx context.Context, ref provision.ClusterRef, cluster *hivev1.ClusterDeployment) (bool, error) {
	metadata := cluster.Spec.ClusterMetadata
	if !cluster.Spec.Installed || metadata == nil || metadata.ClusterID == "" {
		return false, nil
	}
	seen, err := d.Runtime.Observe(ctx, ref)
	if err != nil {
		return false, fmt.Errorf("observing what is left of hosted cluster %s: %w", ref, err)
	}
	return seen.ID == metadata.ClusterID, nil
}
