// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
)

// maxMessage is how long an errorMessage can be, in bytes.
const maxMessage = 1024

// execute does what a plan decided, and returns the data as it is then.
func (r *Reconciler) execute(ctx context.Context, data *infrav1.Metal3Data, actions []dataplan.Action) (*infrav1.Metal3Data, error) {
	for _, action := range actions {
		var err error
		switch do := action.(type) {
		case dataplan.ReleaseClaim:
			err = r.releaseClaim(ctx, do.Claim)
		case dataplan.DeleteClaim:
			err = r.deleteClaim(ctx, do.Claim)
		case dataplan.AdoptClaim:
			err = r.adoptClaim(ctx, do)
		case dataplan.DeleteData:
			err = r.deleteData(ctx, data)
		case dataplan.ReleaseData:
			err = r.releaseData(ctx, data)
		case dataplan.UpdateData:
			data, err = do.Data, r.updateData(ctx, data, do.Data)
		case dataplan.CreateClaim:
			err = r.createClaim(ctx, do)
		case dataplan.CreateSecret:
			err = r.createSecret(ctx, do.Secret)
		}
		if err != nil {
			return data, err
		}
	}
	return data, nil
}

// releaseClaim takes the finalizer off a claim.
func (r *Reconciler) releaseClaim(ctx context.Context, claim dataplan.Claim) error {
	before := claim.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(claim.Object, infrav1.DataFinalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := outcome.IgnoreGone(r.Client.Patch(ctx, claim.Object, patch, client.FieldOwner(FieldOwner))); err != nil {
		return fmt.Errorf("removing the finalizer of %s %s: %w", claim.Kind, claim.GetName(), err)
	}
	return nil
}

func (r *Reconciler) deleteClaim(ctx context.Context, claim dataplan.Claim) error {
	uid := claim.GetUID()
	if err := outcome.IgnoreGone(r.Client.Delete(ctx, claim.Object, client.Preconditions{UID: &uid})); err != nil {
		return fmt.Errorf("deleting %s %s: %w", claim.Kind, claim.GetName(), err)
	}
	return nil
}

// adoptClaim gives a claim that was restored its owner and its finalizer. The change of the claim starts another pass.
func (r *Reconciler) adoptClaim(ctx context.Context, do dataplan.AdoptClaim) error {
	claim := do.Claim
	before := claim.DeepCopyObject().(client.Object)
	claim.SetOwnerReferences([]metav1.OwnerReference{do.Owner})
	controllerutil.AddFinalizer(claim.Object, infrav1.DataFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := outcome.IgnoreGone(r.Client.Patch(ctx, claim.Object, patch, client.FieldOwner(FieldOwner))); err != nil {
		return fmt.Errorf("adopting %s %s: %w", claim.Kind, claim.GetName(), err)
	}
	ctrl.LoggerFrom(ctx).Info("Adopted a claim by its name", claim.Kind, claim.GetName())
	return nil
}

// deleteData deletes data whose claim is gone.
func (r *Reconciler) deleteData(ctx context.Context, data *infrav1.Metal3Data) error {
	ctrl.LoggerFrom(ctx).Info("Deleted the data of a claim that is gone", "Metal3DataClaim", data.Spec.Claim.Name)
	err := r.Client.Delete(ctx, data, client.Preconditions{UID: &data.UID})
	if err = outcome.IgnoreGone(err); err != nil {
		return fmt.Errorf("deleting Metal3Data %s: %w", data.Name, err)
	}
	return nil
}

// releaseData removes the finalizer of data whose claims are gone.
func (r *Reconciler) releaseData(ctx context.Context, data *infrav1.Metal3Data) error {
	before := data.DeepCopy()
	data.Finalizers = dataplan.WithoutOurs(data.Finalizers)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := outcome.IgnoreGone(r.Client.Patch(ctx, data, patch, client.FieldOwner(FieldOwner))); err != nil {
		return fmt.Errorf("removing the finalizer of Metal3Data %s: %w", data.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Data is gone", "index", data.Spec.Index)
	return nil
}

func (r *Reconciler) updateData(ctx context.Context, before, data *infrav1.Metal3Data) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, data, patch, client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("preparing Metal3Data %s: %w", data.Name, err)
	}
	return nil
}

func (r *Reconciler) createClaim(ctx context.Context, do dataplan.CreateClaim) error {
	if theirs, ok := do.Claim.(*unstructured.Unstructured); ok {
		served, _ := r.kinds.get(dataplan.ContractClaimKind)
		theirs.SetGroupVersionKind(served)
	}
	err := r.Client.Create(ctx, do.Claim, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		err = outcome.Again(err) // the event of the write that came first is on its way
	}
	if err != nil {
		return fmt.Errorf("creating %s %s: %w", do.Kind, do.Claim.GetName(), err)
	}
	ctrl.LoggerFrom(ctx).Info("Claimed an address", do.Kind, do.Claim.GetName())
	return nil
}

func (r *Reconciler) createSecret(ctx context.Context, secret *corev1.Secret) error {
	err := r.Client.Create(ctx, secret, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Secret %s: %w", secret.Name, outcome.Again(err))
	}
	if err != nil {
		// The error of a Secret that is refused may quote it.
		return fmt.Errorf("creating Secret %s: %s", secret.Name, apierrors.ReasonForError(err))
	}
	ctrl.LoggerFrom(ctx).Info("Rendered", "Secret", secret.Name)
	return nil
}

// report writes how far the data is, unless the status says so.
func (r *Reconciler) report(ctx context.Context, data *infrav1.Metal3Data, decision dataplan.Decision) error {
	report := decision.Report
	if report == nil {
		if decision.Why != "" {
			r.note(data, decision.Why)
		}
		return nil
	}
	if report.Ready {
		r.waits.drop(client.ObjectKeyFromObject(data))
	}
	before := data.DeepCopy()
	data.Status = infrav1.Metal3DataStatus{Ready: report.Ready}
	if report.Message != "" {
		message := strings.ToValidUTF8(report.Message[:min(len(report.Message), maxMessage)], "")
		data.Status.ErrorMessage = &message
	}
	if equality.Semantic.DeepEqual(before.Status, data.Status) {
		r.note(data, decision.Why)
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, data, patch, client.FieldOwner(FieldOwner)); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("writing the status of Metal3Data %s: %w", data.Name, err))
	}
	r.note(data, decision.Why)
	switch {
	case report.Ready:
		ctrl.LoggerFrom(ctx).Info("Data is rendered")
		r.Recorder.Eventf(data, nil, corev1.EventTypeNormal, reasonRendered, "Render", "The Secrets are there")
	case report.Message != "":
		ctrl.LoggerFrom(ctx).Info("Data is not rendered", "why", decision.Why, "message", report.Message)
		r.Recorder.Eventf(data, nil, corev1.EventTypeWarning, string(decision.Why), "Render", "%s", report.Message)
	}
	return nil
}
