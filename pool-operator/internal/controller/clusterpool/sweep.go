// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// sweep deletes what is left of a pool that is gone: clusters that are marked to be removed, and namespaces that were made for its clusters and hold none.
func (r *Reconciler) sweep(ctx context.Context, key types.NamespacedName) error {
	namespaces, err := r.namespacesOf(ctx, key)
	if err != nil {
		return err
	}
	var failures []error
	for _, ns := range namespaces {
		if ns.Occupied && !ns.Deleting {
			failures = append(failures, r.sweepCluster(ctx, key, ns.Name))
		}
	}
	for _, a := range poolplan.Orphans(namespaces) {
		empty, err := isEmpty(ctx, r.Live, a.Name)
		if err == nil && empty {
			err = r.deleteNamespace(ctx, a)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// sweepCluster deletes the cluster in a namespace that was made for it, if it is marked and nothing keeps it. The API server is asked whether the pool is gone.
func (r *Reconciler) sweepCluster(ctx context.Context, key types.NamespacedName, namespace string) error {
	cd := &hivev1.ClusterDeployment{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: namespace}, cd); err != nil {
		return client.IgnoreNotFound(err)
	}
	c := poolview.ClusterOf(cd)
	if c.Pool != key || !c.Marked || c.Deleting || c.Kept() {
		return nil
	}
	if err := r.Live.Get(ctx, key, &hivev1.ClusterPool{}); !outcome.IsGone(err) {
		return err
	}
	err := r.Client.Delete(ctx, cd, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	if err = outcome.IgnoreGone(err); err != nil {
		return fmt.Errorf("deleting cluster %s, whose pool is gone: %w", namespace, err)
	}
	log.FromContext(ctx).Info("deleted a marked cluster of a pool that is gone", "ClusterDeployment", namespace)
	return nil
}
