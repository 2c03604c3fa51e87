// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/render"
)

// maxMessage is how long an errorMessage can be, in bytes.
const maxMessage = 1024

// Secrets are the names of what a template renders for a machine.
func Secrets(template *infrav1.Metal3DataTemplate, machine string) (metaData, networkData *infrav1.SecretReference) {
	if template.Spec.MetaData != nil {
		metaData = &infrav1.SecretReference{Name: machine + infrav1.MetaDataSuffix, Namespace: template.Namespace}
	}
	if template.Spec.NetworkData != nil {
		networkData = &infrav1.SecretReference{Name: machine + infrav1.NetworkDataSuffix, Namespace: template.Namespace}
	}
	return metaData, networkData
}

// render claims addresses, and writes the Secrets that are not there when all are known.
func (r *Reconciler) render(ctx context.Context, data *infrav1.Metal3Data, claim *infrav1.Metal3DataClaim, template *infrav1.Metal3DataTemplate) error {
	subject, err := r.subject(ctx, data, claim)
	if err != nil {
		return because(WhyMachineNotReady, err)
	}
	if err := r.prepare(ctx, data, template, subject.Name); err != nil {
		return err
	}
	pools, err := render.Pools(&template.Spec, subject)
	if err != nil {
		return because(WhyNotRenderable, refusal(err.Error()))
	}
	addresses, err := r.addresses(ctx, data, subject, pools)
	if err != nil {
		return because(WhyNoAddress, err)
	}
	if template.Spec.MetaData != nil {
		err := r.write(ctx, data, template, data.Spec.MetaData.Name, infrav1.MetaDataKey, func() ([]byte, error) {
			return render.MetaData(template.Spec.MetaData, subject, addresses)
		})
		if err != nil {
			return err
		}
	}
	if template.Spec.NetworkData != nil {
		err := r.write(ctx, data, template, data.Spec.NetworkData.Name, infrav1.NetworkDataKey, func() ([]byte, error) {
			return render.NetworkData(template.Spec.NetworkData, subject, addresses)
		})
		if err != nil {
			return err
		}
	}
	r.waits.drop(client.ObjectKeyFromObject(data))
	return nil
}

// prepare writes the finalizer and the names of the Secrets, where data that another client made lacks them.
func (r *Reconciler) prepare(ctx context.Context, data *infrav1.Metal3Data, template *infrav1.Metal3DataTemplate, machine string) error {
	before := data.DeepCopy()
	controllerutil.AddFinalizer(data, infrav1.DataFinalizer)
	metaData, networkData := Secrets(template, machine)
	if data.Spec.MetaData == nil || data.Spec.MetaData.Name == "" {
		data.Spec.MetaData = metaData
	}
	if data.Spec.NetworkData == nil || data.Spec.NetworkData.Name == "" {
		data.Spec.NetworkData = networkData
	}
	if equality.Semantic.DeepEqual(before, data) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, data, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("preparing Metal3Data %s: %w", data.Name, err)
	}
	return nil
}

// write makes a Secret, unless it is there: what a machine was provisioned with stays as it is.
func (r *Reconciler) write(ctx context.Context, data *infrav1.Metal3Data, template *infrav1.Metal3DataTemplate, name, key string, content func() ([]byte, error)) error {
	if there, err := r.secret(ctx, data, name); there || err != nil {
		return because(WhySecretInTheWay, err)
	}
	rendered, err := content()
	if err != nil {
		return because(WhyNotRenderable, refusal(err.Error()))
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: data.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{controllerOf(data)}},
		Type:       infrav1.SecretType,
		Data:       map[string][]byte{key: rendered},
	}
	if cluster := cmp.Or(template.Labels[ipamv1.ClusterNameLabel], template.Spec.ClusterName, data.Labels[ipamv1.ClusterNameLabel]); cluster != "" {
		secret.Labels = map[string]string{ipamv1.ClusterNameLabel: cluster}
	}
	err = r.Client.Create(ctx, secret, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		_, err = r.secret(ctx, data, name)
		return because(WhySecretInTheWay, err)
	}
	if err != nil {
		// The error of a Secret that is refused may quote it.
		return fmt.Errorf("creating Secret %s: %s", name, apierrors.ReasonForError(err))
	}
	ctrl.LoggerFrom(ctx).Info("Rendered", "Secret", name)
	return nil
}

// report writes how far the data is, unless the status says so. A refusal becomes a condition; another error is returned.
func (r *Reconciler) report(ctx context.Context, data *infrav1.Metal3Data, result error) error {
	message, refused := isRefusal(result)
	if result != nil && !refused {
		return result
	}
	var by cause
	errors.As(result, &by)
	before := data.DeepCopy()
	data.Status = infrav1.Metal3DataStatus{Ready: !refused}
	if message != "" {
		message = strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
		data.Status.ErrorMessage = &message
	}
	if equality.Semantic.DeepEqual(before.Status, data.Status) {
		r.note(data, by.why)
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, data, patch, client.FieldOwner(FieldOwner)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status of Metal3Data %s: %w", data.Name, err))
	}
	r.note(data, by.why)
	switch {
	case !refused:
		ctrl.LoggerFrom(ctx).Info("Data is rendered")
		r.Recorder.Eventf(data, nil, corev1.EventTypeNormal, ReasonRendered, "Render", "The Secrets are there")
	case message != "":
		ctrl.LoggerFrom(ctx).Info("Data is not rendered", "why", by.why, "message", message)
		r.Recorder.Eventf(data, nil, corev1.EventTypeWarning, string(by.why), "Render", "%s", message)
	}
	return nil
}

// delete deletes data whose claim is gone. Data that this operator has never served was made by hand, and may be ahead of its claim.
func (r *Reconciler) delete(ctx context.Context, data *infrav1.Metal3Data) error {
	if !slices.ContainsFunc(data.Finalizers, isOurs) {
		return r.report(ctx, data, because(WhyClaimNotFound, refuse("Metal3DataClaim %s not found", data.Spec.Claim.Name)))
	}
	ctrl.LoggerFrom(ctx).Info("Deleted the data of a claim that is gone", "Metal3DataClaim", data.Spec.Claim.Name)
	err := r.Client.Delete(ctx, data, client.Preconditions{UID: &data.UID})
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("deleting Metal3Data %s: %w", data.Name, err)
	}
	return nil
}

// release gives the addresses back, waits until their claims are gone, and lets the data go. Its Secrets go with it.
func (r *Reconciler) release(ctx context.Context, data *infrav1.Metal3Data) error {
	if !slices.ContainsFunc(data.Finalizers, isOurs) {
		return nil
	}
	claims, err := r.claims(ctx, client.ObjectKeyFromObject(data))
	if err != nil {
		return err
	}
	left := 0
	for claim, kind := range claims {
		if !isOwnedBy(claim, data.UID) {
			continue
		}
		left++
		if hold, err := r.Clusters.HoldFor(ctx, "", claim); err != nil {
			return err
		} else if hold == allocate.HeldPaused {
			continue
		}
		if err := r.setDown(ctx, kind, claim); err != nil {
			return err
		}
		if !claim.GetDeletionTimestamp().IsZero() {
			continue
		}
		uid := claim.GetUID()
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, claim, client.Preconditions{UID: &uid})); err != nil {
			return fmt.Errorf("deleting %s %s: %w", kind, claim.GetName(), err)
		}
	}
	if left > 0 {
		return nil
	}
	before := data.DeepCopy()
	data.Finalizers = slices.DeleteFunc(slices.Clone(data.Finalizers), isOurs)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, data, patch, client.FieldOwner(FieldOwner))); err != nil {
		return fmt.Errorf("letting Metal3Data %s go: %w", data.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Data is gone", "index", data.Spec.Index)
	return nil
}

// isOurs reports whether a finalizer of a Metal3Data is one that waits for its addresses. The second one is on data that was
// made before this operator served it.
func isOurs(finalizer string) bool {
	return finalizer == infrav1.DataFinalizer || finalizer == infrav1.ClaimFinalizer
}
