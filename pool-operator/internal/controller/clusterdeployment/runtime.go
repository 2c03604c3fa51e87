// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"

	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/changes"
)

// Runtime runs hosted clusters: as child processes, or as pods. All methods may be called at any time, from several goroutines, for any cluster, and
// are idempotent. None waits for a cluster: Start, Stop and Delete return once the intent is recorded where it survives the
// operator, and Changes wakes the caller when there is something new to observe.
type Runtime interface {
	Observer
	Actuator
	Inventory
}

// Observer reports the state of a cluster.
type Observer interface {
	// Observe says what is there now, asking the cluster's own /readyz where something runs, for at most a few seconds. A cluster that was never
	// started, or is gone, is StateAbsent and no error. An error means that nothing can be said; it is retried.
	Observe(ctx context.Context, ref provision.ClusterRef) (provision.Observation, error)
	// Access returns the administrator's credentials. They exist from the moment Start returned nil, also while the cluster is stopped.
	Access(ctx context.Context, ref provision.ClusterRef) (provision.Access, error)
}

// Actuator changes what runs. It returns an impossible request as a *provision.Problem; the observation then has the same
// problem and a greater count of failures, with the state Failed (or Absent, if nothing was laid down yet) after Start, Stopping after Stop
// and Deleting after Delete.
type Actuator interface {
	// Start makes the cluster run: the first time with new data, identity, certificates and password, later with what it has. It does nothing when the
	// cluster is starting or ready. After StateFailed it tries again; the caller decides how often.
	Start(ctx context.Context, ref provision.ClusterRef, spec provision.Spec) error
	// Renew makes the serving certificate and the administrator's credentials anew where an observation called them outdated, without a restart. It does nothing otherwise.
	Renew(ctx context.Context, ref provision.ClusterRef, spec provision.Spec) error
	// Stop ends everything that runs and keeps the data. It does nothing when nothing runs.
	Stop(ctx context.Context, ref provision.ClusterRef) error
	// Delete ends everything that runs and removes the data. It has finished when Observe says StateAbsent.
	Delete(ctx context.Context, ref provision.ClusterRef) error
}

// Inventory knows all clusters of a runtime.
type Inventory interface {
	// List returns every cluster of which there is anything that this operator can remove, running or not, whatever its state.
	List(ctx context.Context) ([]provision.ClusterRef, error)
	// Changes wakes the controller: something about a cluster changed. It is the same for the life of the runtime.
	Changes() *changes.Changes
}
