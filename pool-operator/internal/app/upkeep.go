// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-io/muster/pool-operator/internal/controller/hibernation"
	"github.com/muster-io/muster/pool-operator/internal/controller/pooladmin"
)

// addHibernation puts clusters to sleep that ran for their hibernateAfter.
func addHibernation(mgr ctrl.Manager) error {
	err := hibernation.New(hibernation.Deps{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("hibernation"), Clock: clock.RealClock{},
	}).SetupWithManager(mgr)
	if err != nil {
		return fmt.Errorf("setting up the controller of hibernation: %w", err)
	}
	return nil
}

// addPoolAdmins repeats the bindings of pool admins in the namespaces of clusters.
func addPoolAdmins(ctx context.Context, mgr ctrl.Manager) error {
	if err := pooladmin.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := pooladmin.New(pooladmin.Deps{Client: mgr.GetClient()}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the controller of pool admins: %w", err)
	}
	return nil
}
