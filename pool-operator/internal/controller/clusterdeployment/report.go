// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1ac "github.com/muster-io/muster/apis/applyconfiguration/hive/v1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/ownwrites"
	"github.com/muster-io/muster/apis/truncate"
)

// writer writes ClusterDeployments: parts of the object, and the part of the status that is one controller's to say.
type writer struct {
	client   client.Client
	recorder events.EventRecorder
	// conditions are the types that the controller writes.
	conditions []string
	// written spares passes that begin with a view older than their own writes, which would write the Secrets again.
	written ownwrites.Memory[types.NamespacedName]
}

// patch changes the cluster if it is still the one that was read, and takes over what the API server made of it.
func (w *writer) patch(ctx context.Context, cluster *hivev1.ClusterDeployment, what string, change func(*hivev1.ClusterDeployment)) error {
	before := client.MergeFromWithOptions(cluster.DeepCopy(), client.MergeFromWithOptimisticLock{})
	change(cluster)
	if err := w.client.Patch(ctx, cluster, before, FieldOwner); err != nil {
		return fmt.Errorf("%s ClusterDeployment %s: %w", what, refOf(cluster), err)
	}
	w.written.Wrote(client.ObjectKeyFromObject(cluster), cluster.ResourceVersion)
	return nil
}

// report makes the status say what the plan says, in one write, or none when it says so already. The write holds the resourceVersion of
// what was read, so that times that were set once are not set again by a replica whose cache lags.
func (w *writer) report(ctx context.Context, cluster *hivev1.ClusterDeployment, status *hivev1.ClusterDeploymentStatus) error {
	if status == nil || equality.Semantic.DeepEqual(w.own(cluster.Status), w.own(*status)) {
		return nil
	}
	apply := hivev1ac.ClusterDeployment(cluster.Name, cluster.Namespace).
		WithUID(cluster.UID).WithResourceVersion(cluster.ResourceVersion).WithStatus(applyStatus(w.own(*status)))
	if err := w.client.Status().Apply(ctx, apply, FieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("writing the status of ClusterDeployment %s: %w", refOf(cluster), err)
	}
	if apply.ResourceVersion != nil {
		w.written.Wrote(client.ObjectKeyFromObject(cluster), *apply.ResourceVersion)
	}
	w.announce(cluster, *status)
	return nil
}

// own returns the part of a status that this controller writes, in an order that can be compared.
func (w *writer) own(status hivev1.ClusterDeploymentStatus) hivev1.ClusterDeploymentStatus {
	mine := hivev1.ClusterDeploymentStatus{
		PowerState: status.PowerState, APIURL: status.APIURL, InstallRestarts: status.InstallRestarts, InstallVersion: status.InstallVersion,
		InstallStartedTimestamp: status.InstallStartedTimestamp, InstalledTimestamp: status.InstalledTimestamp,
	}
	for _, conditionType := range w.conditions {
		if c := hivev1.FindCondition(status.Conditions, conditionType); c != nil {
			mine.Conditions = append(mine.Conditions, *c)
		}
	}
	return mine
}

func applyStatus(status hivev1.ClusterDeploymentStatus) *hivev1ac.ClusterDeploymentStatusApplyConfiguration {
	apply := hivev1ac.ClusterDeploymentStatus()
	for _, c := range status.Conditions {
		apply.WithConditions(hivev1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithLastProbeTime(c.LastProbeTime).WithLastTransitionTime(c.LastTransitionTime))
	}
	if status.PowerState != "" {
		apply.WithPowerState(status.PowerState)
	}
	if status.APIURL != "" {
		apply.WithAPIURL(status.APIURL)
	}
	if status.InstallRestarts != 0 {
		apply.WithInstallRestarts(status.InstallRestarts)
	}
	apply.InstallVersion = status.InstallVersion
	apply.InstallStartedTimestamp = status.InstallStartedTimestamp
	apply.InstalledTimestamp = status.InstalledTimestamp
	return apply
}

// announce publishes an event for each condition whose reason became one that a user would want to know of.
func (w *writer) announce(cluster *hivev1.ClusterDeployment, status hivev1.ClusterDeploymentStatus) {
	for _, c := range status.Conditions {
		before := hivev1.FindCondition(cluster.Status.Conditions, c.Type)
		if before != nil && before.Status == c.Status && before.Reason == c.Reason {
			continue
		}
		if kind, ok := eventType(c); ok {
			w.recorder.Eventf(cluster, nil, kind, c.Reason, "Report", "%s", truncate.Note(c.Message))
		}
	}
}

// eventType says whether a condition is an outcome worth an event, and of which type.
func eventType(c hivev1.Condition) (string, bool) {
	bad := []string{hivev1.ClusterDeploymentProvisionFailed, hivev1.ClusterDeploymentProvisionStopped, hivev1.ClusterDeploymentUnreachable, hivev1.ClusterDeploymentDataAtRisk}
	good := []string{hivev1.ClusterDeploymentProvisioned, hivev1.ClusterDeploymentHibernating, hivev1.ClusterDeploymentReady}
	switch {
	case c.Status != corev1.ConditionTrue:
		return "", false
	case slices.Contains(bad, c.Type):
		return corev1.EventTypeWarning, true
	default:
		return corev1.EventTypeNormal, slices.Contains(good, c.Type)
	}
}
