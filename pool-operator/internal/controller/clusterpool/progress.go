// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// CacheProgress reads from informers how far they have come.
type CacheProgress struct {
	Informers cache.Informers
}

// View implements Progress. It is what the store holds that counts, not what the watch has delivered.
func (p CacheProgress) View(ctx context.Context) (hivev1.ClusterPoolObservation, error) {
	clusters, err := p.storeVersion(ctx, &hivev1.ClusterDeployment{})
	if err != nil {
		return hivev1.ClusterPoolObservation{}, err
	}
	claims, err := p.storeVersion(ctx, &hivev1.ClusterClaim{})
	if err != nil {
		return hivev1.ClusterPoolObservation{}, err
	}
	return hivev1.ClusterPoolObservation{ClusterDeployments: clusters, ClusterClaims: claims}, nil
}

func (p CacheProgress) storeVersion(ctx context.Context, object client.Object) (string, error) {
	informer, err := p.Informers.GetInformer(ctx, object)
	if err != nil {
		return "", fmt.Errorf("asking how far the cache of %T has come: %w", object, err)
	}
	stored, ok := informer.(interface{ GetStore() toolscache.Store })
	if !ok {
		return "", nil
	}
	return stored.GetStore().LastStoreSyncResourceVersion(), nil
}
