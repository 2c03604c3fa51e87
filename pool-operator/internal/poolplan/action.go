// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Why says what an action is for. It is log field, event reason and metric label; the set is closed.
type Why string

// Reasons of actions.
const (
	// WhyBelowTarget: there are fewer clusters than size and waiting claims ask for.
	WhyBelowTarget Why = "BelowTarget"
	// WhyReleased: the claim that had the cluster is gone, or a user asked for its removal.
	WhyReleased Why = "Released"
	// WhyBroken: the cluster was not installed, does not resume, or misses its data.
	WhyBroken Why = "Broken"
	// WhyEntryRemoved: the inventory does not list the cluster's name any more.
	WhyEntryRemoved Why = "EntryRemoved"
	// WhyAboveTarget: there are more clusters than size and waiting claims ask for.
	WhyAboveTarget Why = "AboveTarget"
	// WhyStale: the cluster was made from an earlier version of the pool, or replaces one that was.
	WhyStale Why = "Stale"
	// WhyPoolDeleted: the pool is being deleted.
	WhyPoolDeleted Why = "PoolDeleted"
	// WhyRecorded: an earlier pass recorded the operation, and its effect has not been seen yet.
	WhyRecorded Why = "Recorded"
	// WhyRunningCount: the cluster is, or is no longer, one of those that run.
	WhyRunningCount Why = "RunningCount"
	// WhyNamespaceEmpty: the cluster for which the namespace was made is gone.
	WhyNamespaceEmpty Why = "NamespaceEmpty"
	// WhyPoolCreated: the pool is new.
	WhyPoolCreated Why = "PoolCreated"
	// WhyCreationRefused: the API server refused the cluster.
	WhyCreationRefused Why = "CreationRefused"
)

// Action is one effect.
//
//sumtype:decl
type Action interface {
	// Reason says what the action is for.
	Reason() Why
	action()
}

// HoldPool puts the finalizer on the pool, before its first cluster.
type HoldPool struct {
	Why Why
}

// ReleasePool takes the finalizer off the pool, after its last cluster.
type ReleasePool struct {
	Why Why
}

// CreateCluster creates a namespace and the ClusterDeployment in it. It is recorded as an operation; the namespace or the ClusterDeployment may exist already.
type CreateCluster struct {
	// Namespace is the name of both.
	Namespace   string
	ClusterName string
	Power       hivev1.PowerState
	Version     string
	// Replay says that an earlier pass recorded it.
	Replay bool
	Why    Why
}

// DeleteCluster deletes a ClusterDeployment. It is recorded as an operation.
type DeleteCluster struct {
	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string
	// Replay says that an earlier pass recorded it.
	Replay bool
	Why    Why
}

// WithdrawCluster makes sure that a cluster that was to be created is not there. It is recorded as an operation.
type WithdrawCluster struct {
	Namespace string
	Why       Why
}

// SetPower changes what a cluster's spec says about power.
type SetPower struct {
	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string
	Power           hivev1.PowerState
	Why             Why
}

// DeleteNamespace deletes the namespace of a cluster that is gone.
type DeleteNamespace struct {
	Name string
	UID  types.UID
	Why  Why
}

// Reason implements Action.
func (a HoldPool) Reason() Why { return a.Why }

// Reason implements Action.
func (a ReleasePool) Reason() Why { return a.Why }

// Reason implements Action.
func (a CreateCluster) Reason() Why { return a.Why }

// Reason implements Action.
func (a DeleteCluster) Reason() Why { return a.Why }

// Reason implements Action.
func (a WithdrawCluster) Reason() Why { return a.Why }

// Reason implements Action.
func (a SetPower) Reason() Why { return a.Why }

// Reason implements Action.
func (a DeleteNamespace) Reason() Why { return a.Why }

func (HoldPool) action()        {}
func (ReleasePool) action()     {}
func (CreateCluster) action()   {}
func (DeleteCluster) action()   {}
func (WithdrawCluster) action() {}
func (SetPower) action()        {}
func (DeleteNamespace) action() {}
