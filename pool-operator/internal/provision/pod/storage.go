// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// storage is the volume of a cluster.
type storage struct {
	// size and class are what its claim asks for.
	size  resource.Quantity
	class string
	// capacity is what it has: more than its size where the provisioner rounds up, or where the claim was expanded.
	capacity resource.Quantity
}

// volume returns the volume that a cluster has, and the one that the options ask for where it has none yet: the template of a volume cannot change.
func (r *Runtime) volume(ctx context.Context, ref provision.ClusterRef) (storage, error) {
	v := storage{size: r.options.VolumeSize, class: r.options.StorageClass}
	set, err := read(ctx, r.options.Client, ref, objectName(ref), &appsv1.StatefulSet{})
	if err != nil {
		return v, err
	}
	if set != nil && len(set.Spec.VolumeClaimTemplates) == 1 {
		template := &set.Spec.VolumeClaimTemplates[0].Spec
		v.size, v.class = template.Resources.Requests[corev1.ResourceStorage], ""
		if template.StorageClassName != nil {
			v.class = *template.StorageClassName
		}
	}
	v.capacity = v.size
	claim, err := read(ctx, r.options.Client, ref, volumeName(ref), &corev1.PersistentVolumeClaim{})
	if err != nil {
		return v, err
	}
	if claim != nil {
		if capacity, bound := claim.Status.Capacity[corev1.ResourceStorage]; bound {
			v.capacity = capacity
		}
	}
	return v, nil
}

// Bounds of etcd's quota: etcd does not start with less than its first pages, and recommends no more than 8 GiB.
const (
	leastQuota = 32 << 20
	mostQuota  = 8 << 30
)

// quota returns how large etcd's database may become, in bytes: half of the volume. The other half is for the write-ahead log, of which etcd allocates 64 MiB at a time, and for the
// copy of the database that defragmentation writes. On a volume that is full, etcd does not start, and no client can delete anything.
func (v storage) quota() int64 {
	return min(max(v.capacity.Value()/2, leastQuota), mostQuota)
}

// storageArgs keep etcd within its volume. The API server compacts every five minutes, by a write that etcd refuses once the quota is reached; then etcd compacts by itself, so that
// deleting objects and defragmenting make room. A single member needs no more of the write-ahead log than follows its last snapshot.
func storageArgs(v storage) []string {
	return []string{
		fmt.Sprintf("--quota-backend-bytes=%d", v.quota()),
		"--auto-compaction-mode=periodic",
		"--auto-compaction-retention=10m",
		"--max-wals=2",
	}
}
