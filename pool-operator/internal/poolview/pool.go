// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolview

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Pool is what a ClusterPool says, as far as its claims decide from it. Pools can be compared with ==, but for Conditions and ClaimLifetime, which reflect.DeepEqual compares.
type Pool struct {
	Deleting    bool
	ClaimPolicy hivev1.ClaimPolicy
	// Bounded says that the pool has a maxConcurrent, so that it deletes clusters itself.
	Bounded bool
	// Frozen says that maxConcurrent is 0.
	Frozen bool
	// Paused says that a user paused the pool: it creates and deletes no clusters.
	Paused        bool
	ClaimLifetime *hivev1.ClusterPoolClaimLifetime
	// MachinePools is what the pool allows a claim's subjects to do with MachinePools.
	MachinePools MachinePoolRights
	Limits       Limits
	// Conditions are those that waiting claims repeat, without their times.
	Conditions [3]hivev1.Condition
	// DeletionKeys are the keys of clusters that the pool has decided to delete, joined by spaces.
	DeletionKeys string
}

// MachinePoolRights is what a claim's subjects may do with the MachinePools of their cluster.
type MachinePoolRights string

// Values of MachinePoolRights.
const (
	// MachinePoolsNone: the clusters have no machines, or the pool skips MachinePools.
	MachinePoolsNone MachinePoolRights = ""
	// MachinePoolsScale: machines come from a stock that clusters share. The pool says which MachinePools there are, subjects how many machines each has.
	MachinePoolsScale MachinePoolRights = "Scale"
	// MachinePoolsManage: another controller gives the clusters machines. Subjects create MachinePools and delete them.
	MachinePoolsManage MachinePoolRights = "Manage"
)

func machinePoolRightsOf(spec *hivev1.ClusterPoolSpec) MachinePoolRights {
	hosted := spec.Platform.Hosted
	switch {
	case spec.SkipMachinePools || hosted != nil && hosted.Nodes == nil:
		return MachinePoolsNone
	case hosted != nil:
		return MachinePoolsScale
	}
	return MachinePoolsManage
}

// Limits is how long clusters of a pool may take; 0 is for ever.
type Limits struct {
	// Resume is how long an installed cluster may take to run.
	Resume time.Duration
	// Install is how long installation may take.
	Install time.Duration
}

// defaultHostedInstallTimeout is how long the installation of a hosted cluster may take when the pool does not say.
const defaultHostedInstallTimeout = 10 * time.Minute

// LimitsOf reads the limits of a pool.
func LimitsOf(spec *hivev1.ClusterPoolSpec) Limits {
	var limits Limits
	if config := spec.HibernationConfig; config != nil {
		limits.Resume = durationOf(config.ResumeTimeout, 0)
	}
	standard := time.Duration(0)
	if spec.Platform.Hosted != nil && spec.ClusterInstallTemplate == nil {
		standard = defaultHostedInstallTimeout
	}
	limits.Install = durationOf(spec.InstallTimeout, standard)
	return limits
}

// PoolOf reads a pool; nil when there is none.
func PoolOf(pool *hivev1.ClusterPool) *Pool {
	if pool == nil {
		return nil
	}
	p := &Pool{
		Deleting: !pool.DeletionTimestamp.IsZero(), ClaimPolicy: pool.Spec.ClaimPolicy,
		Bounded: pool.Spec.MaxConcurrent != nil, Frozen: pool.Spec.MaxConcurrent != nil && *pool.Spec.MaxConcurrent == 0,
		Paused:        hivev1.IsTrue(pool.Annotations, hivev1.AnnotationReconcilePause),
		ClaimLifetime: pool.Spec.ClaimLifetime, MachinePools: machinePoolRightsOf(&pool.Spec), Limits: LimitsOf(&pool.Spec),
	}
	for i, t := range []string{hivev1.ClusterPoolCapacityAvailable, hivev1.ClusterPoolMissingDependencies, hivev1.ClusterPoolProvisioningHealthy} {
		if found := hivev1.FindCondition(pool.Status.Conditions, t); found != nil {
			p.Conditions[i] = hivev1.Condition{Type: t, Status: found.Status, Reason: found.Reason, Message: found.Message}
		}
	}
	var toDelete []string
	for _, op := range pool.Status.Operations {
		if op.Kind == hivev1.OperationDelete {
			toDelete = append(toDelete, DeletionKey(op.Namespace, op.UID))
		}
	}
	p.DeletionKeys = strings.Join(toDelete, " ")
	return p
}

// DeletionKey identifies a cluster that a pool has decided to delete.
func DeletionKey(namespace string, uid types.UID) string { return namespace + "/" + string(uid) }

// ToDelete are the keys of the clusters that the pool has decided to delete.
func (p *Pool) ToDelete() map[string]bool {
	toDelete := make(map[string]bool)
	for key := range strings.FieldsSeq(p.DeletionKeys) {
		toDelete[key] = true
	}
	return toDelete
}

// GivesUpDeletion says whether p has given up deleting a cluster that before was to delete.
func (p *Pool) GivesUpDeletion(before *Pool) bool {
	now := p.ToDelete()
	for key := range before.ToDelete() {
		if !now[key] {
			return true
		}
	}
	return false
}

// Says is what waiting claims repeat about the pool: p without what it is about to delete.
func (p *Pool) Says() Pool {
	out := *p
	out.DeletionKeys = ""
	return out
}

func durationOf(d *metav1.Duration, standard time.Duration) time.Duration {
	if d == nil {
		return standard
	}
	return max(0, d.Duration)
}
