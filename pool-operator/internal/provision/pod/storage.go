// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"

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
	return v, nil
}
