// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// liveRetries is how often a write that lost a conflict is tried again in the same pass.
const liveRetries = 3

// writeAsSeen carries out write with the resourceVersion at which the cluster was seen. After a conflict it reads the cluster from the API server: if nothing changed that a decision is
// made from, it tries again with the version that is there now, so that a client that annotates the object all the time does not block the pool. Otherwise the conflict is returned.
func (r *Reconciler) writeAsSeen(ctx context.Context, p *pass, namespace, version string, write func(version string) error) error {
	for attempt := 0; ; attempt++ {
		err := write(version)
		if !apierrors.IsConflict(err) || attempt == liveRetries {
			return err
		}
		cd := &hivev1.ClusterDeployment{}
		if r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: namespace}, cd) != nil || !p.sees(cd) {
			return err
		}
		version = cd.ResourceVersion
	}
}

// sees says whether the cluster is, but for its resourceVersion, as the pass saw it.
func (p *pass) sees(cd *hivev1.ClusterDeployment) bool {
	is := poolview.ClusterOf(cd)
	for i := range p.snapshot.Clusters {
		if seen := p.snapshot.Clusters[i]; seen.Namespace == is.Namespace {
			seen.ResourceVersion = is.ResourceVersion
			return reflect.DeepEqual(seen, is)
		}
	}
	return false
}
