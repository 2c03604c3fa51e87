// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan

import hivev1 "github.com/muster-io/muster/apis/hive/v1"

// Why says what an action is for. The set is closed: it is a log field and a metric label.
type Why string

// The purposes of actions.
const (
	WhyNew         Why = "New"         // the cluster was never started
	WhyResume      Why = "Resume"      // it is stopped and should run
	WhyRetry       Why = "Retry"       // it failed, and the pause is over
	WhyAnew        Why = "Anew"        // it never answered and dies again and again: it is begun anew
	WhyHang        Why = "Hang"        // it runs and has not answered for long
	WhyHibernate   Why = "Hibernate"   // it runs and should not
	WhyGivenUp     Why = "GivenUp"     // its installation used all its attempts
	WhyInstalled   Why = "Installed"   // its API answers for the first time
	WhyRestore     Why = "Restore"     // something that belongs to an installed cluster is missing
	WhyDeleted     Why = "Deleted"     // its ClusterDeployment is being deleted
	WhyRenew       Why = "Renew"       // what it is reached with ends soon, or is for another address
	WhySuperseded  Why = "Superseded"  // its programs keep it from coming up, and the next start runs others
	WhyDataMissing Why = "DataMissing" // it was started, and its data is gone
	WhyNothingLeft Why = "NothingLeft" // it is being deleted and nothing is left of it
)

// Action is one effect on a cluster. The set is closed. The actions of a decision are carried out in order, each only if the one before it worked.
type Action interface {
	// Purpose says what the action is for.
	Purpose() Why
	action()
}

// AddFinalizer puts hivev1.FinalizerDeprovision on the ClusterDeployment, if it is still the one that was read.
type AddFinalizer struct{ Why Why }

// RemoveFinalizer takes hivev1.FinalizerDeprovision from the ClusterDeployment, if it is still the one that was read.
type RemoveFinalizer struct{ Why Why }

// Start starts the cluster.
type Start struct{ Why Why }

// Renew makes what the cluster is reached with anew, while it runs.
type Renew struct{ Why Why }

// CopyPullSecret gives the copy of the pool's pull secret beside the cluster what the pool has.
type CopyPullSecret struct{ Why Why }

// Stop stops the cluster and keeps its data.
type Stop struct{ Why Why }

// Delete stops the cluster and removes its data. A cluster that is not deleted itself is then started from nothing.
type Delete struct{ Why Why }

// DeleteMachinePools deletes the MachinePools of those names.
type DeleteMachinePools struct {
	Why   Why
	Names []string
}

// PublishAccess writes the Secrets with the administrator's kubeconfig, password and the metadata of the cluster, with
// the names that Metadata refers to.
type PublishAccess struct {
	Why      Why
	Metadata hivev1.ClusterMetadata
}

// PublishNodeAccess applies what joining needs inside the cluster, and writes the Secret of node access that Metadata refers to.
type PublishNodeAccess struct {
	Why      Why
	Metadata hivev1.ClusterMetadata
	// Version of Kubernetes that the cluster reports, as v1.36.3.
	Version string
}

// RecordInstalled sets spec.installed, spec.clusterMetadata and the labels in one write, if the ClusterDeployment is still the one that was read.
type RecordInstalled struct {
	Why      Why
	Metadata hivev1.ClusterMetadata
	Labels   map[string]string
}

// Purpose implements Action.
func (a AddFinalizer) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a RemoveFinalizer) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a Start) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a Renew) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a CopyPullSecret) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a Stop) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a Delete) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a DeleteMachinePools) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a PublishAccess) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a PublishNodeAccess) Purpose() Why { return a.Why }

// Purpose implements Action.
func (a RecordInstalled) Purpose() Why { return a.Why }

func (AddFinalizer) action()       {}
func (RemoveFinalizer) action()    {}
func (Start) action()              {}
func (Renew) action()              {}
func (CopyPullSecret) action()     {}
func (Stop) action()               {}
func (Delete) action()             {}
func (DeleteMachinePools) action() {}
func (PublishAccess) action()      {}
func (PublishNodeAccess) action()  {}
func (RecordInstalled) action()    {}
