// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/controller/ipclaimset"
)

// newSets serves the IPClaims that ask for several addresses.
func newSets(ctx context.Context, mgr ctrl.Manager, o Options, clusters *capi.Clusters) (*ipclaimset.Reconciler, error) {
	sets := ipclaimset.New(ipclaimset.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clusters: clusters, Filter: o.filter(), Recorder: operator.Recorder(mgr.GetEventRecorder(reporter)),
		Namespace: o.Namespace, Workers: o.PoolWorkers,
	})
	return sets, sets.Index(ctx, mgr.GetFieldIndexer())
}
