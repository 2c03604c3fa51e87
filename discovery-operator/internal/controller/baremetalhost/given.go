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
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
)

// given takes the hardware over that a user wrote into an annotation of a host that is not to be inspected. The annotation goes last, so that
// a process that dies in between does it again. One that cannot be used stays, and an event says why.
func (r *Reconciler) given(ctx context.Context, host *metal3v1.BareMetalHost) (changed bool, err error) {
	text, ok := host.Annotations[metal3v1.HardwareDetailsAnnotation]
	if !ok || host.DeletionTimestamp != nil || !host.HasStatus() { // a status begins with the state
		return false, nil
	}
	leave := func(why string) (bool, error) {
		r.Recorder.Eventf(host, nil, corev1.EventTypeWarning, "InvalidAnnotationValue", "Manage",
			"The annotation %s is not used: %s", metal3v1.HardwareDetailsAnnotation, why)
		return false, nil
	}
	if !host.InspectionDisabled() {
		return leave("set spec.inspectionMode to disabled, or remove it and have the machine inspected")
	}
	var hardware metal3v1.HardwareDetails
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&hardware); err != nil {
		return leave(err.Error())
	}
	if err := r.setHardware(ctx, host, &hardware); apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return leave(err.Error())
	} else if err != nil {
		return false, err
	}
	next := host.DeepCopy()
	delete(next.Annotations, metal3v1.HardwareDetailsAnnotation)
	err = r.Client.Patch(ctx, next, client.MergeFrom(host), client.FieldOwner(FieldOwner))
	return true, outcome.IgnoreGone(wrap(err, "removing the annotation %s of host %s", metal3v1.HardwareDetailsAnnotation, client.ObjectKeyFromObject(host)))
}

// setHardware writes hardware to the status of a host.
func (r *Reconciler) setHardware(ctx context.Context, host *metal3v1.BareMetalHost, hardware *metal3v1.HardwareDetails) error {
	all := metal3v1ac.BareMetalHostStatus()
	data, err := json.Marshal(metal3v1.BareMetalHostStatus{HardwareDetails: hardware})
	if err == nil {
		err = json.Unmarshal(data, all)
	}
	if err != nil {
		return fmt.Errorf("writing the hardware of host %s: %w", client.ObjectKeyFromObject(host), err)
	}
	status := metal3v1ac.BareMetalHostStatus()
	status.HardwareDetails = all.HardwareDetails
	object := metal3v1ac.BareMetalHost(host.Name, host.Namespace).WithUID(host.UID).WithStatus(status)
	err = r.Client.SubResource("status").Apply(ctx, object, client.FieldOwner(FieldOwner+"/hardware"), client.ForceOwnership)
	return wrap(err, "writing the hardware of host %s", client.ObjectKeyFromObject(host))
}
