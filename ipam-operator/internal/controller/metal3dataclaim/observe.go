// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3dataclaim

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// observe reads the template, nil if there is none, and whether something may be done.
func (r *Reconciler) observe(ctx context.Context, claim *infrav1.Metal3DataClaim) (*infrav1.Metal3DataTemplate, allocate.Hold, error) {
	template := &infrav1.Metal3DataTemplate{}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.Template.Name}
	err := r.Client.Get(ctx, key, template)
	if apierrors.IsNotFound(err) {
		hold, err := r.Clusters.HoldFor(ctx, "", claim)
		return nil, hold, err
	}
	if err != nil {
		return nil, allocate.NotHeld, fmt.Errorf("reading Metal3DataTemplate %s: %w", key, err)
	}
	hold, err := r.Clusters.HoldFor(ctx, template.Spec.ClusterName, claim, template)
	return template, hold, err
}
