// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// rackRunner powers up the machines of the demo's rack one by one.
type rackRunner struct {
	rack *demo.Rack
	o    Options
}

// Start implements a manager's Runnable.
func (r rackRunner) Start(ctx context.Context) error {
	if err := r.rack.PowerUp(ctx, 1, r.o.DemoMachines, r.o.DemoInterval); err != nil {
		return wrap(err, "powering up the demo's rack")
	}
	<-ctx.Done()
	return nil
}
