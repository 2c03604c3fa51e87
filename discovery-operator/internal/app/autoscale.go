// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/discovery-operator/internal/controller/autoscale"
	"github.com/muster-io/muster/discovery-operator/internal/metrics"
)

// addAutoscaling makes sets of machines follow hosts, where that is wanted.
func addAutoscaling(ctx context.Context, mgr ctrl.Manager, o Options, counters *metrics.Metrics) error {
	if !o.AutoscaleToHosts {
		return nil
	}
	// A write names the version that it changes, so no later read has to wait until the cache shows it.
	plain, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return wrap(err, "making a client without cache")
	}
	err = autoscale.SetupWithManager(ctx, mgr, autoscale.Deps{
		Reader: mgr.GetCache(), Scales: plain.SubResource("scale"), Recorder: operator.Recorder(mgr.GetEventRecorder(name)), Counter: counters,
	})
	return wrap(err, "adding the controllers of sets that follow hosts")
}

// slimOther takes out of objects of any other kind what no decision looks at.
func slimOther(object any) (any, error) {
	return cache.TransformStripManagedFields()(autoscale.Slim(object))
}
