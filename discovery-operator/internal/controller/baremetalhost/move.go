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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// restore gives a host without status the one that its annotation holds, and removes the annotation: tools that move objects to another cluster leave
// the status behind. The annotation goes last, so that a process that dies in between does it again. One that cannot be used stays, and an event says why.
func (r *Reconciler) restore(ctx context.Context, host *metal3v1.BareMetalHost) (changed bool, err error) {
	text, ok := host.Annotations[metal3v1.StatusAnnotation]
	if !ok || host.DeletionTimestamp != nil {
		return false, nil
	}
	if host.HasStatus() {
		if decodeStatus(text, metal3v1ac.BareMetalHostStatus()) != nil { // an event said so before the host had a status
			return false, nil //nolint:nilerr // as an event said
		}
	} else {
		status := metal3v1ac.BareMetalHostStatus()
		if err := decodeStatus(text, status); err != nil {
			return r.unusable(host, err), nil
		}
		status.WithLastUpdated(metav1.NewTime(r.Now()))
		object := metal3v1ac.BareMetalHost(host.Name, host.Namespace).WithUID(host.UID).WithStatus(status)
		err := r.Client.SubResource("status").Apply(ctx, object, client.FieldOwner(FieldOwner+"/restored"), client.ForceOwnership)
		switch {
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			return r.unusable(host, err), nil
		case err != nil:
			return false, client.IgnoreNotFound(wrap(err, "restoring the status of host %s", client.ObjectKeyFromObject(host)))
		}
	}
	next := host.DeepCopy()
	delete(next.Annotations, metal3v1.StatusAnnotation)
	err = r.Client.Patch(ctx, next, client.MergeFrom(host), client.FieldOwner(FieldOwner))
	return true, client.IgnoreNotFound(wrap(err, "removing the annotation %s of host %s", metal3v1.StatusAnnotation, client.ObjectKeyFromObject(host)))
}

func (r *Reconciler) unusable(host *metal3v1.BareMetalHost, why error) (changed bool) {
	r.Events.Eventf(host, nil, corev1.EventTypeWarning, "InvalidAnnotationValue", "Manage", "The annotation %s is not used: %s", metal3v1.StatusAnnotation, why)
	return false
}

// decodeStatus reads a whole status, in which nothing may be that a status does not have.
func decodeStatus(text string, into *metal3v1ac.BareMetalHostStatusApplyConfiguration) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var whole metal3v1.BareMetalHostStatus
	if err := decoder.Decode(&whole); err != nil {
		return fmt.Errorf("reading the status: %w", err)
	}
	data, err := json.Marshal(whole) // with what is required, also where the text left it out
	if err != nil {
		return fmt.Errorf("reading the status: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading the status: %w", err)
	}
	return nil
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
		return client.IgnoreNotFound(wrap(err, "reading host %s", client.ObjectKeyFromObject(host)))
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
	return client.IgnoreNotFound(wrap(err, "writing the annotation %s of host %s", metal3v1.StatusAnnotation, client.ObjectKeyFromObject(host)))
}
