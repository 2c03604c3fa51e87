// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Why says why an action is taken. The set is closed; the value appears in logs, events and metrics.
type Why string

// The reasons of actions.
const (
	// WhyOldest: the cluster is the oldest one that is free for the claim.
	WhyOldest Why = "OldestCluster"
	// WhyRunning: the cluster is the oldest running one that is free for the claim.
	WhyRunning Why = "OldestRunningCluster"
	// WhyRecorded: the cluster records the claim already.
	WhyRecorded Why = "ClusterRecordsClaim"
	// WhyAssigned: the claim names the cluster.
	WhyAssigned Why = "ClusterAssigned"
	// WhyUnidentified: the cluster records the claim's name and not yet its UID.
	WhyUnidentified Why = "ClaimUIDMissing"
	// WhyLost: the cluster that the claim names cannot become its own.
	WhyLost Why = "AssignmentConflict"
	// WhyPreset: the claim names a cluster that the operator did not assign.
	WhyPreset Why = "NamespacePreset"
	// WhyDoubt: a view of the cluster may be out of date, and a conclusion from it cannot be taken back.
	WhyDoubt Why = "ViewInDoubt"
	// WhyRights: the subjects' rights are not what the claim says.
	WhyRights Why = "RightsDiffer"
	// WhyNoSubjects: the claim has no subjects.
	WhyNoSubjects Why = "NoSubjects"
	// WhyDeleted: the claim is being deleted.
	WhyDeleted Why = "ClaimDeleted"
	// WhyOrphaned: the claim that the cluster records does not exist any more.
	WhyOrphaned Why = "ClaimGone"
	// WhyFound: the claim that the cluster records is there again.
	WhyFound Why = "ClaimFound"
	// WhyExpired: the claim's lifetime is over.
	WhyExpired Why = "LifetimeOver"
	// WhyReleased: the claim's cluster and its subjects' rights are gone.
	WhyReleased Why = "ClusterReleased"
)

// Action is one write, or one reading of the truth. The implementations in this file are all there are.
//
//sumtype:decl
type Action interface {
	// Reason says why the action is taken.
	Reason() Why
	isAction()
}

// AssignCluster makes the claim name its cluster and keep itself until that is given back: spec.namespace and the finalizer, in one write with the claim's
// resourceVersion as precondition.
type AssignCluster struct {
	Cluster string
	Why     Why
}

// ReturnCluster makes the claim name no cluster and not keep itself: the opposite of AssignCluster, with the same precondition.
type ReturnCluster struct {
	Why Why
}

// RecordClaim makes the cluster the claim's: name, UID and time, and the cluster shall run, in one write with the cluster's resourceVersion as precondition.
// When the cluster records the claim's name already, the UID alone is written.
type RecordClaim struct {
	Cluster         string
	UID             types.UID
	ResourceVersion string
	At              time.Time
	Why             Why
}

// VerifyCluster reads the cluster that the claim names, and the rights there, from the API server.
type VerifyCluster struct {
	Cluster string
	Why     Why
}

// GrantRights makes the Role and RoleBinding of the claim's subjects what they should be. They belong to the ClusterDeployment with the UID and go with it.
type GrantRights struct {
	Cluster  string
	UID      types.UID
	Rules    []rbacv1.PolicyRule
	Subjects []rbacv1.Subject
	// Role and Binding say which of the two has to be written.
	Role, Binding bool
	// Replace says that the binding leads to another role and has to be deleted first, because that cannot be changed.
	Replace bool
	Why     Why
}

// RevokeRights deletes the RoleBinding, then the Role, of the claim's subjects.
type RevokeRights struct {
	Cluster string
	// Role and Binding say which of the two is there.
	Role, Binding bool
	Why           Why
}

// ReleaseCluster gives the cluster up: it is deleted, or marked for the pool to delete it within its maxConcurrent. It holds the resourceVersion that was read: a cluster that is
// protected or paused meanwhile stays.
type ReleaseCluster struct {
	Cluster         string
	UID             types.UID
	ResourceVersion string
	// Mark says that the pool deletes the cluster.
	Mark bool
	Why  Why
}

// ReportMissing says on the ClusterDeployment that the claim which it records does not exist, or takes that back. It holds the resourceVersion that was read.
type ReportMissing struct {
	Cluster         string
	UID             types.UID
	ResourceVersion string
	// Restored says that the cluster comes from a backup, so that its claim may still come; Found that the claim is there.
	Restored, Found bool
	Why             Why
}

// ExpireClaim deletes the claim, with its UID and resourceVersion as precondition.
type ExpireClaim struct {
	Why Why
}

// DropFinalizer removes the finalizer of the claim, with its resourceVersion as precondition.
type DropFinalizer struct {
	Why Why
}

// Reason says why the action is taken.
func (a AssignCluster) Reason() Why { return a.Why }

// Reason says why the action is taken.
func (a ReturnCluster) Reason() Why { return a.Why }

// Reason says why the action is taken.
func (a RecordClaim) Reason() Why { return a.Why }

// Reason says why the action is taken.
func (a VerifyCluster) Reason() Why { return a.Why }

// Reason says why the action is taken.
func (a GrantRights) Reason() Why { return a.Why }

// Reason says why the action is taken.
func (a RevokeRights) Reason() Why { return a.Why }

// Reason says why the action is taken.
func (a ReleaseCluster) Reason() Why { return a.Why }

// Reason says why the action is taken.
func (a ReportMissing) Reason() Why { return a.Why }

// Reason says why the action is taken.
func (a ExpireClaim) Reason() Why { return a.Why }

// Reason says why the action is taken.
func (a DropFinalizer) Reason() Why { return a.Why }

func (AssignCluster) isAction()  {}
func (ReturnCluster) isAction()  {}
func (RecordClaim) isAction()    {}
func (VerifyCluster) isAction()  {}
func (GrantRights) isAction()    {}
func (RevokeRights) isAction()   {}
func (ReleaseCluster) isAction() {}
func (ReportMissing) isAction()  {}
func (ExpireClaim) isAction()    {}
func (DropFinalizer) isAction()  {}

// Decision is what happens next to a claim.
type Decision struct {
	// Action is the next step; nil when there is none.
	Action Action
	// Status is what the claim's status should say as things are before Action; nil when it says so already, or is better not touched.
	Status *hivev1.ClusterClaimStatus
	// RequeueAfter is when time alone changes the decision; 0 when it never does.
	RequeueAfter time.Duration
}
