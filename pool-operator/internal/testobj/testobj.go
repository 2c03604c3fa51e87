// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testobj builds objects for tests. Each modifier sets one thing.
package testobj

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// ImageSetName is the image set that pools of this package name.
const ImageSetName = "release"

// Namespace is where pools and claims of this package live, unless In says otherwise.
const Namespace = "pools"

// PoolOption changes one thing of a pool.
type PoolOption func(*hivev1.ClusterPool)

// Pool builds a pool of hosted clusters of size 1.
func Pool(name string, options ...PoolOption) *hivev1.ClusterPool {
	pool := &hivev1.ClusterPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name},
		Spec: hivev1.ClusterPoolSpec{
			Platform:    hivev1.Platform{Hosted: &hivev1.HostedPlatform{}},
			BaseDomain:  "example.com",
			ImageSetRef: hivev1.ClusterImageSetReference{Name: ImageSetName},
			Size:        1,
		},
	}
	for _, option := range options {
		option(pool)
	}
	return pool
}

// In puts the pool into a namespace.
func In(namespace string) PoolOption {
	return func(p *hivev1.ClusterPool) { p.Namespace = namespace }
}

// Size sets spec.size.
func Size(n int32) PoolOption {
	return func(p *hivev1.ClusterPool) { p.Spec.Size = n }
}

// MaxSize sets spec.maxSize.
func MaxSize(n int32) PoolOption {
	return func(p *hivev1.ClusterPool) { p.Spec.MaxSize = &n }
}

// MaxConcurrent sets spec.maxConcurrent.
func MaxConcurrent(n int32) PoolOption {
	return func(p *hivev1.ClusterPool) { p.Spec.MaxConcurrent = &n }
}

// RunningCount sets spec.runningCount.
func RunningCount(n int32) PoolOption {
	return func(p *hivev1.ClusterPool) { p.Spec.RunningCount = n }
}

// Inventory sets the names of spec.inventory; without names the inventory is empty, but there.
func Inventory(names ...string) PoolOption {
	return func(p *hivev1.ClusterPool) {
		p.Spec.Inventory = &hivev1.ClusterPoolInventory{}
		for _, name := range names {
			p.Spec.Inventory.ClusterDeployments = append(p.Spec.Inventory.ClusterDeployments, hivev1.InventoryClusterDeployment{Name: name})
		}
	}
}

// UnusableInventory gives the pool an inventory that is no object; stored is its JSON.
func UnusableInventory(stored string) PoolOption {
	return func(p *hivev1.ClusterPool) { p.Spec.Inventory = &hivev1.ClusterPoolInventory{Unusable: []byte(stored)} }
}

// ImageSet sets spec.imageSetRef.
func ImageSet(name string) PoolOption {
	return func(p *hivev1.ClusterPool) { p.Spec.ImageSetRef.Name = name }
}

// PullSecret sets spec.pullSecretRef.
func PullSecret(name string) PoolOption {
	return func(p *hivev1.ClusterPool) { p.Spec.PullSecretRef = &hivev1.LocalObjectReference{Name: name} }
}

// InstallConfigTemplate sets spec.installConfigSecretTemplateRef.
func InstallConfigTemplate(name string) PoolOption {
	return func(p *hivev1.ClusterPool) {
		p.Spec.InstallConfigSecretTemplateRef = &hivev1.LocalObjectReference{Name: name}
	}
}

// ResumeTimeout sets spec.hibernationConfig.resumeTimeout.
func ResumeTimeout(d time.Duration) PoolOption {
	return func(p *hivev1.ClusterPool) {
		p.Spec.HibernationConfig = &hivev1.HibernationConfig{ResumeTimeout: &metav1.Duration{Duration: d}}
	}
}

// Held puts the pool's finalizer on it, as after its first pass.
func Held() PoolOption {
	return func(p *hivev1.ClusterPool) { p.Finalizers = append(p.Finalizers, hivev1.FinalizerClusterPool) }
}

// DeletedAt marks the pool as being deleted since t.
func DeletedAt(t time.Time) PoolOption {
	return func(p *hivev1.ClusterPool) { p.DeletionTimestamp = &metav1.Time{Time: t} }
}

// ClusterImageSet builds the image set that pools of this package name.
func ClusterImageSet(name string) *hivev1.ClusterImageSet {
	return &hivev1.ClusterImageSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       hivev1.ClusterImageSetSpec{ReleaseImage: "registry.example.com/release:1"},
	}
}

// ClaimOption changes one thing of a claim.
type ClaimOption func(*hivev1.ClusterClaim)

// Claim builds a claim on a pool.
func Claim(name, pool string, options ...ClaimOption) *hivev1.ClusterClaim {
	claim := &hivev1.ClusterClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       hivev1.ClusterClaimSpec{ClusterPoolName: pool},
	}
	for _, option := range options {
		option(claim)
	}
	return claim
}

// ClaimIn puts the claim into a namespace.
func ClaimIn(namespace string) ClaimOption {
	return func(c *hivev1.ClusterClaim) { c.Namespace = namespace }
}

// Secret builds a Secret with one key.
func Secret(namespace, name, key, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: []byte(value)}}
}
