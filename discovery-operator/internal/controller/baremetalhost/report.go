// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// report writes the status of a host that this operator manages, if it changed, and says what happened. The write fails if the host
// changed since it was read, so that two replicas cannot take a host two ways.
func (r *Reconciler) report(ctx context.Context, d hoststate.Decision) error {
	host, out := d.Known.Host, d.Then
	now := metav1.NewTime(r.Now()).Rfc3339Copy().Time // as it will be stored
	old, status := &host.Status, d.Status(now)
	if equality.Semantic.DeepEqual(old, status) && host.HasStatus() {
		return nil
	}
	status.LastUpdated = new(metav1.NewTime(now))
	if err := writeStatus(ctx, r.Client, host, status); err != nil {
		return wrap(err, "writing the status of host %s", client.ObjectKeyFromObject(host))
	}
	if from := d.Known.State; d.Step.To != from {
		ctrl.LoggerFrom(ctx).Info("host moved on", "BareMetalHost", client.ObjectKeyFromObject(host).String(), "from", string(from),
			"to", string(d.Step.To), "why", d.Step.Why)
		r.Recorder.Eventf(host, nil, corev1.EventTypeNormal, d.Step.To.Reason(), "Manage", "%s", hoststate.Sentence(d.Step.Why))
	}
	if out.Kind != "" && (old.ErrorType != out.Kind || old.ErrorMessage != out.Message) {
		r.Recorder.Eventf(host, nil, corev1.EventTypeWarning, out.Reason, "Manage", "%s", out.Message)
	}
	power := meta.FindStatusCondition(status.Conditions, metal3v1.ConditionPowerControl)
	if power.Reason == metal3v1.ReasonRebootNotPossible || power.Reason == metal3v1.ReasonInspectionNotPossible {
		before := meta.FindStatusCondition(old.Conditions, metal3v1.ConditionPowerControl)
		if before == nil || before.Reason != power.Reason {
			r.Recorder.Eventf(host, nil, corev1.EventTypeWarning, power.Reason, "Power", "%s", power.Message)
		}
	}
	return nil
}

// writeStatus applies a status under the resourceVersion of its host. An apply leaves what an earlier writer owns: another operator, or the one whose status moved with the
// host. Of that, what the status does not have is cleared by a patch; a process that dies before does it with its next status.
func writeStatus(ctx context.Context, c client.Client, host *metal3v1.BareMetalHost, status *metal3v1.BareMetalHostStatus) error {
	object := metal3v1ac.BareMetalHost(host.Name, host.Namespace).WithUID(host.UID).WithResourceVersion(host.ResourceVersion).WithStatus(applied(status))
	if err := c.SubResource("status").Apply(ctx, object, client.FieldOwner(lifeOwner), client.ForceOwnership); err != nil {
		return err
	}
	stored, err := storedPart(object)
	if err != nil {
		return err
	}
	wanted := stored.DeepCopy()
	wanted.Status.ErrorType, wanted.Status.GoodCredentials = status.ErrorType, status.GoodCredentials
	wanted.Status.OperationHistory, wanted.Status.Provisioning.Image = status.OperationHistory, status.Provisioning.Image
	wanted.Status.Provisioning.CustomDeploy = status.Provisioning.CustomDeploy
	if equality.Semantic.DeepEqual(stored.Status, wanted.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})
	return c.Status().Patch(ctx, wanted, patch, client.FieldOwner(lifeOwner))
}

// storedPart reads from the answer to an apply what the status of a host has in fields that can be cleared.
func storedPart(answer *metal3v1ac.BareMetalHostApplyConfiguration) (*metal3v1.BareMetalHost, error) {
	part := metal3v1ac.BareMetalHostStatus()
	if s := answer.Status; s != nil {
		part.ErrorType, part.GoodCredentials, part.OperationHistory = s.ErrorType, s.GoodCredentials, s.OperationHistory
		if s.Provisioning != nil {
			part.Provisioning = metal3v1ac.ProvisionStatus()
			part.Provisioning.Image, part.Provisioning.CustomDeploy = s.Provisioning.Image, s.Provisioning.CustomDeploy
		}
	}
	host := &metal3v1.BareMetalHost{}
	host.Namespace, host.Name, host.ResourceVersion = *answer.Namespace, *answer.Name, *answer.ResourceVersion
	data, err := json.Marshal(part)
	if err == nil {
		err = json.Unmarshal(data, &host.Status)
	}
	return host, wrap(err, "reading the status that was written")
}

// applied is the part of a status that this controller owns.
func applied(s *metal3v1.BareMetalHostStatus) *metal3v1ac.BareMetalHostStatusApplyConfiguration {
	out := metal3v1ac.BareMetalHostStatus().WithOperationalStatus(s.OperationalStatus).WithErrorMessage(s.ErrorMessage).
		WithErrorCount(s.ErrorCount).WithPoweredOn(s.PoweredOn).WithProvisioningFailCount(s.ProvisioningFailCount).
		WithLastUpdated(*s.LastUpdated).
		WithProvisioning(provisioning(&s.Provisioning))
	if s.ErrorType != "" {
		out.WithErrorType(s.ErrorType)
	}
	if h := s.OperationHistory; h.Inspect.Start != nil || h.Provision.Start != nil || h.Deprovision.Start != nil {
		history := metal3v1ac.OperationHistory()
		history.Inspect, history.Provision, history.Deprovision = metric(h.Inspect), metric(h.Provision), metric(h.Deprovision)
		out.WithOperationHistory(history)
	}
	if ref := s.GoodCredentials.Reference; ref != nil {
		out.WithGoodCredentials(metal3v1ac.CredentialsStatus().WithVersion(s.GoodCredentials.Version).
			WithReference(*ref))
	}
	for i := range s.Conditions {
		switch c := &s.Conditions[i]; c.Type {
		case metal3v1.ConditionReady, metal3v1.ConditionPowerControl, metal3v1.ConditionHandedOver:
			out.WithConditions(metav1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
				WithObservedGeneration(c.ObservedGeneration).WithLastTransitionTime(c.LastTransitionTime))
		}
	}
	return out
}

func provisioning(p *metal3v1.ProvisionStatus) *metal3v1ac.ProvisionStatusApplyConfiguration {
	out := metal3v1ac.ProvisionStatus().WithState(p.State).WithID(p.ID)
	if image := p.Image; image != nil {
		out.WithImage(metal3v1ac.Image().WithURL(image.URL))
		if image.Checksum != "" {
			out.Image.WithChecksum(image.Checksum)
		}
		if image.ChecksumType != "" {
			out.Image.WithChecksumType(image.ChecksumType)
		}
		out.Image.DiskFormat, out.Image.OCIAuthSecretName = image.DiskFormat, image.OCIAuthSecretName
	}
	return out
}

func metric(m metal3v1.OperationMetric) *metal3v1ac.OperationMetricApplyConfiguration {
	if m.Start == nil {
		return nil
	}
	out := metal3v1ac.OperationMetric().WithStart(*m.Start)
	out.End = m.End
	return out
}
