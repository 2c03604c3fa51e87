// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// observe reads all that a plan depends on.
func (r *Reconciler) observe(ctx context.Context, cluster *hivev1.ClusterDeployment) (hostedplan.Snapshot, error) {
	snapshot := hostedplan.Snapshot{Cluster: cluster}
	paused := hostedplan.Paused(cluster)
	if paused && (!cluster.Spec.Installed || cluster.DeletionTimestamp != nil) {
		return snapshot, nil
	}
	var err error
	if snapshot.Observed, err = r.Runtime.Observe(ctx, refOf(cluster)); err != nil {
		return snapshot, fmt.Errorf("observing hosted cluster %s: %w", refOf(cluster), err)
	}
	if paused {
		return snapshot, nil
	}
	if snapshot.MachinePools, err = r.machinePools(ctx, cluster); err != nil {
		return snapshot, err
	}
	if snapshot.PullSecretOutdated, err = r.pullSecretOutdated(ctx, cluster, snapshot.Observed); err != nil {
		return snapshot, err
	}
	if cluster.Spec.Installed && cluster.DeletionTimestamp == nil {
		if snapshot.Observed.State == provision.StateAbsent {
			if snapshot.FormerUID, err = r.formerUID(ctx, cluster); err != nil {
				return snapshot, err
			}
		}
		if snapshot.AccessMissing, err = r.accessMissing(ctx, cluster, snapshot.Observed.AccessID); err != nil {
			return snapshot, err
		}
		snapshot.NodeAccessMissing, err = r.nodeAccessMissing(ctx, cluster, snapshot.Observed)
	}
	return snapshot, err
}

// AccessAnnotation on a Secret with credentials is their ID, so that credentials that were renewed are handed out.
const AccessAnnotation = "hosted.muster.io/access"

// accessMissing looks for the Secrets by their metadata; their content is never read. A Secret that the cache lacks, or has with other content, is looked up in the API server: it
// may have been written a moment ago.
func (r *Reconciler) accessMissing(ctx context.Context, cluster *hivev1.ClusterDeployment, id string) (bool, error) {
	for _, name := range secretNames(cluster.Spec.ClusterMetadata) {
		if missing, err := r.secretMissing(ctx, cluster, name, id); missing || err != nil {
			return missing, err
		}
	}
	return false, nil
}

func (r *Reconciler) secretMissing(ctx context.Context, cluster *hivev1.ClusterDeployment, name, id string) (bool, error) {
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: name}
	current, err := holdsAccess(ctx, r.Metadata, key, id)
	if err == nil && !current {
		current, err = holdsAccess(ctx, r.Live, key, id)
	}
	if err != nil {
		return false, fmt.Errorf("looking for Secret %s: %w", key, err)
	}
	return !current, nil
}

// holdsAccess says whether the Secret is there, with the credentials of that ID unless it is empty.
func holdsAccess(ctx context.Context, reader client.Reader, key client.ObjectKey, id string) (bool, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := reader.Get(ctx, key, secret); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return id == "" || secret.Annotations[AccessAnnotation] == id, nil
}

// secretNames lists the Secrets that hold the credentials of a cluster.
func secretNames(metadata *hivev1.ClusterMetadata) []string {
	if metadata == nil {
		return nil
	}
	names := []string{metadata.AdminKubeconfigSecretRef.Name}
	for _, ref := range []*hivev1.LocalObjectReference{metadata.AdminPasswordSecretRef, metadata.MetadataJSONSecretRef} {
		if ref != nil {
			names = append(names, ref.Name)
		}
	}
	return names
}

// refOf names the cluster to the runtime.
func refOf(cluster *hivev1.ClusterDeployment) provision.ClusterRef {
	return provision.ClusterRef{Namespace: cluster.Namespace, Name: cluster.Name, UID: cluster.UID}
}
