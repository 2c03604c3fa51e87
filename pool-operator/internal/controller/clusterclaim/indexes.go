// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Indexes of the caches.
const (
	// indexClusterPool finds ClusterDeployments by the namespace/name of their pool.
	indexClusterPool = "clusterclaim.pool"
	// indexClusterClaim finds ClusterDeployments by the namespace/name of the claim that they record.
	indexClusterClaim = "clusterclaim.claim"
	// indexClaimPool finds ClusterClaims by the name of their pool.
	indexClaimPool = "clusterclaim.pool"
	// indexClaimCluster finds ClusterClaims by the namespace of the cluster that they name.
	indexClaimCluster = "clusterclaim.cluster"
)

// indexes are the fields by which this package looks objects up.
func indexes() []struct {
	object client.Object
	field  string
	keys   client.IndexerFunc
} {
	return []struct {
		object client.Object
		field  string
		keys   client.IndexerFunc
	}{
		{&hivev1.ClusterDeployment{}, indexClusterPool, keyOfCluster(func(ref *hivev1.ClusterPoolReference) string { return ref.PoolName })},
		{&hivev1.ClusterDeployment{}, indexClusterClaim, keyOfCluster(func(ref *hivev1.ClusterPoolReference) string { return ref.ClaimName })},
		{&hivev1.ClusterClaim{}, indexClaimPool, keyOfClaim(func(claim *hivev1.ClusterClaim) string { return claim.Spec.ClusterPoolName })},
		{&hivev1.ClusterClaim{}, indexClaimCluster, keyOfClaim(func(claim *hivev1.ClusterClaim) string { return claim.Spec.Namespace })},
	}
}

// AddIndexes prepares caches for this package.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range indexes() {
		if err := indexer.IndexField(ctx, index.object, index.field, index.keys); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.object, index.field, err)
		}
	}
	return nil
}

func keyOfCluster(name func(*hivev1.ClusterPoolReference) string) client.IndexerFunc {
	return func(obj client.Object) []string {
		cd, ok := obj.(*hivev1.ClusterDeployment)
		if !ok || cd.Spec.ClusterPoolRef == nil || name(cd.Spec.ClusterPoolRef) == "" {
			return nil
		}
		return []string{types.NamespacedName{Namespace: cd.Spec.ClusterPoolRef.Namespace, Name: name(cd.Spec.ClusterPoolRef)}.String()}
	}
}

func keyOfClaim(key func(*hivev1.ClusterClaim) string) client.IndexerFunc {
	return func(obj client.Object) []string {
		claim, ok := obj.(*hivev1.ClusterClaim)
		if !ok || key(claim) == "" {
			return nil
		}
		return []string{key(claim)}
	}
}

// CacheRoles restricts the cache of Roles to those of claims' subjects; no other is ever read.
func CacheRoles(byObject map[client.Object]cache.ByObject) {
	byObject[&rbacv1.Role{}] = cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", hivev1.ClaimOwnerRoleName)}
}
