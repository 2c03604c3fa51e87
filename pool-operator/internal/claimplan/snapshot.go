// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Snapshot is what one claim's next step depends on. Nothing in it is changed by [Plan].
type Snapshot struct {
	// Claim is the claim in question, never nil.
	Claim *hivev1.ClusterClaim
	// Pool is the pool that the claim names; nil when there is none.
	Pool *hivev1.ClusterPool
	// Own is the ClusterDeployment in the namespace that spec.namespace names; nil when there is none, or nothing is named.
	Own *Cluster
	// Verified says that Own was read from the API server in this pass. Nothing is concluded from the absence of a cluster, or from its belonging to
	// somebody else, before.
	Verified bool
	// Lost says that the claim lost its cluster to another claim in this pass.
	Lost bool
	// Clusters are the pool's clusters. They are not needed, and may be left out, when Own records the claim.
	Clusters []Cluster
	// Claims are all claims of the pool, this one included, in any order. They may be left out together with Clusters.
	Claims []Waiter
	// Role and Binding are those of the claim's subjects in the cluster's namespace; nil when there is none.
	Role    *rbacv1.Role
	Binding *rbacv1.RoleBinding
}

// Waiter is a claim of the pool, as far as the queue is concerned.
type Waiter struct {
	Name    string
	UID     types.UID
	Created time.Time
	// Cluster is the namespace of the cluster that the operator assigned to the claim; empty when it has none.
	Cluster string
	// Leaves is when spec.queueTimeout is over; zero when it never is.
	Leaves time.Time
	// Deleting claims neither wait nor take.
	Deleting bool
	// Paused claims keep their place and are given nothing.
	Paused bool
}

// WaiterOf reads a claim. A spec.namespace without the operator's finalizer does not come from the operator, which writes both at once, and counts for nothing.
func WaiterOf(claim *hivev1.ClusterClaim) Waiter {
	w := Waiter{
		Name:     claim.Name,
		UID:      claim.UID,
		Created:  claim.CreationTimestamp.Time,
		Deleting: !claim.DeletionTimestamp.IsZero(),
		Paused:   isTrue(claim.Annotations, hivev1.AnnotationReconcilePause),
	}
	if hasFinalizer(claim) {
		w.Cluster = claim.Spec.Namespace
	}
	if claim.Spec.QueueTimeout != nil {
		w.Leaves = claim.CreationTimestamp.Add(claim.Spec.QueueTimeout.Duration)
	}
	return w
}

// Cluster is a ClusterDeployment, as far as claims are concerned.
type Cluster struct {
	// Namespace of the ClusterDeployment, which is also its name.
	Namespace       string
	UID             types.UID
	ResourceVersion string
	Created         time.Time
	// Pool is the pool that created the cluster; zero when none did.
	Pool types.NamespacedName
	// ClaimName and ClaimUID identify the claim that has the cluster. Clusters that were claimed before UIDs were recorded have a name only.
	ClaimName string
	ClaimUID  types.UID
	Installed bool
	// InstalledAt is zero when it is not known.
	InstalledAt time.Time
	Running     bool
	// Asleep says that the cluster should not run.
	Asleep bool
	// Resuming is since when the cluster tries to run without running; zero when it does not.
	Resuming time.Time
	// Failed says that installation failed for good.
	Failed   bool
	Deleting bool
	// Marked says that the cluster is to be removed from its pool.
	Marked    bool
	Protected bool
	Paused    bool
	// Metadata says which Secrets lead into the cluster; nil until it is installed.
	Metadata *hivev1.ClusterMetadata
}

// ClusterOf reads a ClusterDeployment.
func ClusterOf(cd *hivev1.ClusterDeployment) Cluster {
	c := Cluster{
		Namespace:       cd.Namespace,
		UID:             cd.UID,
		ResourceVersion: cd.ResourceVersion,
		Created:         cd.CreationTimestamp.Time,
		Installed:       cd.Spec.Installed,
		InstalledAt:     timeOf(cd.Status.InstalledTimestamp),
		Running:         isRunning(cd),
		Asleep:          cd.Spec.PowerState == hivev1.PowerStateHibernating,
		Resuming:        resumingSince(cd),
		Failed:          hivev1.IsConditionTrue(cd.Status.Conditions, hivev1.ClusterDeploymentProvisionStopped),
		Deleting:        !cd.DeletionTimestamp.IsZero(),
		Marked:          isTrue(cd.Annotations, hivev1.AnnotationRemoveFromPool) || isTrue(cd.Annotations, hivev1.AnnotationRemoveFromPoolOld),
		Protected:       isTrue(cd.Annotations, hivev1.AnnotationProtectedDelete),
		Paused:          isTrue(cd.Annotations, hivev1.AnnotationReconcilePause),
		Metadata:        cd.Spec.ClusterMetadata,
	}
	if ref := cd.Spec.ClusterPoolRef; ref != nil {
		c.Pool = types.NamespacedName{Namespace: ref.Namespace, Name: ref.PoolName}
		c.ClaimName, c.ClaimUID = ref.ClaimName, ref.ClaimUID
	}
	return c
}

// isRunning says whether the cluster can be used. Whoever reports Running without a Ready condition is believed.
func isRunning(cd *hivev1.ClusterDeployment) bool {
	ready := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentReady)
	return cd.Status.PowerState == hivev1.PowerStateRunning && (ready == nil || ready.Status != "False")
}

func resumingSince(cd *hivev1.ClusterDeployment) time.Time {
	wanted := cd.Spec.Installed && cd.Spec.PowerState == hivev1.PowerStateRunning
	there := cd.Status.PowerState == hivev1.PowerStateRunning || cd.Status.PowerState == hivev1.PowerStateHibernating
	hibernating := hivev1.FindCondition(cd.Status.Conditions, hivev1.ClusterDeploymentHibernating)
	if !wanted || there || hibernating == nil || hibernating.Status != "False" || hibernating.Reason != hivev1.ReasonResumingOrRunning {
		return time.Time{}
	}
	return hibernating.LastTransitionTime.Time
}

// claimed says whether any claim has the cluster.
func (c *Cluster) claimed() bool { return c.ClaimName != "" }

// of says whether the cluster belongs to the pool that the claim names.
func (c *Cluster) of(claim *hivev1.ClusterClaim) bool {
	return c.Pool == types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.ClusterPoolName}
}

// records says whether the claim has the cluster. A claim is known by its pool's namespace and name, its own name and its UID; a cluster that was claimed before
// UIDs were recorded belongs to the claim that names it in turn.
func (c *Cluster) records(claim *hivev1.ClusterClaim) bool {
	if !c.of(claim) || c.ClaimName != claim.Name {
		return false
	}
	if c.ClaimUID == "" {
		return claim.Spec.Namespace == c.Namespace && hasFinalizer(claim)
	}
	return c.ClaimUID == claim.UID
}

// Usable says whether a claim may get the cluster: it is installed, nobody has it and nobody is about to remove it.
func (c *Cluster) Usable() bool {
	return c.Installed && !c.claimed() && !c.Deleting && !c.Marked && !c.Paused && !c.Failed
}

func byAge(a, b Cluster) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.UID, b.UID))
}

func byRunningAndAge(a, b Cluster) int {
	if a.Running != b.Running {
		if a.Running {
			return -1
		}
		return 1
	}
	return byAge(a, b)
}

func byArrival(a, b Waiter) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func hasFinalizer(claim *hivev1.ClusterClaim) bool {
	return slices.Contains(claim.Finalizers, hivev1.FinalizerClusterClaim)
}

// isTrue reads a boolean annotation. What cannot be read is false.
func isTrue(annotations map[string]string, key string) bool {
	b, err := strconv.ParseBool(annotations[key])
	return err == nil && b
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
