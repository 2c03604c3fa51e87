// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
)

// restore gives a host without status the one that its annotation holds, and removes the annotation: tools that move objects to another cluster leave
// the status behind. The annotation goes last, so that a process that dies in between does it again. One that cannot be used stays, and an event says why.
func (r *Reconciler) restore(ctx context.Context, host *metal3v1.BareMetalHost) (changed bool, err error) {
	text, ok := host.Annotations[metal3v1.StatusAnnotation]
	if !ok || host.DeletionTimestamp != nil {
		return false, nil
	}
	status, err := decodeStatus(text)
	switch {
	case err != nil && host.HasStatus(): // an event said so before the host had a status
		return false, nil
	case err != nil:
		return unusable(ctx, r, host, err)
	case !host.HasStatus():
		if status.HardwareDetails == nil {
			if status.HardwareDetails, err = hardwareData(ctx, r.Live, host); err != nil {
				return false, err
			}
		}
		status.LastUpdated = new(metav1.NewTime(r.Now()))
		whole := metal3v1ac.BareMetalHostStatus()
		if err := convert(status, whole); err != nil {
			return false, err
		}
		err := restored(ctx, r.Client, host, whole)
		switch {
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			return unusable(ctx, r, host, err)
		case err != nil:
			return false, outcome.IgnoreGone(wrap(err, "restoring the status of host %s", client.ObjectKeyFromObject(host)))
		}
	}
	next := host.DeepCopy()
	delete(next.Annotations, metal3v1.StatusAnnotation)
	err = r.Client.Patch(ctx, next, client.MergeFrom(host), client.FieldOwner(FieldOwner))
	return true, outcome.IgnoreGone(wrap(err, "removing the annotation %s of host %s", metal3v1.StatusAnnotation, client.ObjectKeyFromObject(host)))
}

// restored writes a status that was not this host's before.
func restored(ctx context.Context, c client.Client, host *metal3v1.BareMetalHost, status *metal3v1ac.BareMetalHostStatusApplyConfiguration) error {
	object := metal3v1ac.BareMetalHost(host.Name, host.Namespace).WithUID(host.UID).WithStatus(status)
	return c.SubResource("status").Apply(ctx, object, client.FieldOwner(FieldOwner+"/restored"), client.ForceOwnership)
}

// unusable says why an annotation is not used. A host that is in use waits for another one, or for its removal: the life of a host without status begins with a deployment
// of its image, which may be what its machine runs.
func unusable(ctx context.Context, r *Reconciler, host *metal3v1.BareMetalHost, why error) (waits bool, err error) {
	r.Recorder.Eventf(host, nil, corev1.EventTypeWarning, "InvalidAnnotationValue", "Manage", "The annotation %s is not used: %s", metal3v1.StatusAnnotation, why)
	if !host.InUse() {
		return false, nil
	}
	message := fmt.Sprintf("The annotation %s is not used: %s. Correct it. Remove it only where the machine may be deployed anew, which overwrites its disk.",
		metal3v1.StatusAnnotation, strings.TrimRight(why.Error(), "."))
	ready := metav1ac.Condition().WithType(metal3v1.ConditionReady).WithStatus(metav1.ConditionFalse).WithReason(metal3v1.ReasonStatusNotRestored).
		WithMessage(message).WithObservedGeneration(host.Generation).WithLastTransitionTime(metav1.NewTime(r.Now()))
	if c := meta.FindStatusCondition(host.Status.Conditions, metal3v1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		ready.WithLastTransitionTime(c.LastTransitionTime)
	}
	err = restored(ctx, r.Client, host, metal3v1ac.BareMetalHostStatus().WithOperationalStatus(metal3v1.OperationalStatusError).
		WithErrorType(metal3v1.RegistrationError).WithErrorMessage(message).WithErrorCount(1).WithPoweredOn(false).WithProvisioningFailCount(0).
		WithProvisioning(metal3v1ac.ProvisionStatus().WithState(metal3v1.StateNone).WithID("")).WithConditions(ready))
	return true, outcome.IgnoreGone(wrap(err, "writing the status of host %s", client.ObjectKeyFromObject(host)))
}

// decodeStatus reads a whole status, in which nothing may be that a status does not have.
func decodeStatus(text string) (*metal3v1.BareMetalHostStatus, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	whole := &metal3v1.BareMetalHostStatus{}
	if err := decoder.Decode(whole); err != nil {
		return nil, fmt.Errorf("reading the status: %w", err)
	}
	return whole, nil
}

// convert reads a status for an apply, with what is required, also where an annotation left it out.
func convert(status *metal3v1.BareMetalHostStatus, into *metal3v1ac.BareMetalHostStatusApplyConfiguration) error {
	data, err := json.Marshal(status)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	return wrap(err, "reading the status")
}

// hardwareData is the hardware of a host in its HardwareData, nil where there is none: the provider of Cluster API leaves the hardware out of the annotation, and moves HardwareData.
func hardwareData(ctx context.Context, live client.Reader, host *metal3v1.BareMetalHost) (*metal3v1.HardwareDetails, error) {
	var list metal3v1.HardwareDataList
	err := live.List(ctx, &list, client.InNamespace(host.Namespace), client.MatchingFields{"metadata.name": host.Name})
	if meta.IsNoMatchError(err) || err == nil && len(list.Items) == 0 {
		return nil, nil
	} else if err != nil {
		return nil, wrap(err, "looking for the HardwareData of host %s", client.ObjectKeyFromObject(host))
	}
	return list.Items[0].Spec.HardwareDetails, nil
}

// movedAway removes the finalizers of a host that lives on in another cluster, with its node and its machine as they are. The mover deletes a host before it takes the finalizers off, and may be
// cut off in between. A host that it made of one that had the mark already, because the move is repeated, begins here without.
func movedAway(ctx context.Context, r *Reconciler, host *metal3v1.BareMetalHost) (handled bool, err error) {
	if _, marked := host.Annotations[metal3v1.DeleteForMoveAnnotation]; !marked {
		return false, nil
	}
	ours := controllerutil.ContainsFinalizer(host, metal3v1.DiscoveryFinalizer) || r.ManageHosts && controllerutil.ContainsFinalizer(host, metal3v1.BareMetalHostFinalizer)
	switch {
	case host.DeletionTimestamp != nil && ours:
		if _, err := r.finish(ctx, host, true); err != nil {
			return true, err
		}
		r.Recorder.Eventf(host, nil, corev1.EventTypeNormal, metal3v1.EventNodeKept, "Delete",
			"Node %s stays in Ironic, and its machine as it is: clusterctl has moved the host to another cluster", host.Status.Provisioning.ID)
		return true, nil
	case host.DeletionTimestamp == nil && !host.HasStatus():
		return true, (&executor{Reconciler: r, host: host}).unset(ctx, metal3v1.DeleteForMoveAnnotation, client.MergeFrom(host))
	default:
		return false, nil
	}
}

// give writes the status of a host that a user paused into its annotation, so that the host can be moved with it. While the host is paused
// its status does not change, so it is one write.
func (r *Reconciler) give(ctx context.Context, host *metal3v1.BareMetalHost) error {
	value, paused := host.Annotations[metal3v1.PausedAnnotation]
	if !paused || value == metal3v1.DiscoveryPausedValue || host.DeletionTimestamp != nil || !host.HasStatus() {
		return nil
	}
	var whole metal3v1.BareMetalHost // the cache leaves the hardware out
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(host), &whole); err != nil {
		return outcome.IgnoreGone(wrap(err, "reading host %s", client.ObjectKeyFromObject(host)))
	}
	data, err := json.Marshal(whole.Status)
	if err != nil {
		return fmt.Errorf("writing the status of host %s: %w", client.ObjectKeyFromObject(host), err)
	}
	if whole.UID != host.UID || whole.Annotations[metal3v1.StatusAnnotation] == string(data) {
		return nil
	}
	next := whole.DeepCopy()
	next.Annotations[metal3v1.StatusAnnotation] = string(data)
	patch := client.MergeFromWithOptions(&whole, client.MergeFromWithOptimisticLock{})
	err = r.Client.Patch(ctx, next, patch, client.FieldOwner(FieldOwner))
	return outcome.IgnoreGone(wrap(err, "writing the annotation %s of host %s", metal3v1.StatusAnnotation, client.ObjectKeyFromObject(host)))
}
