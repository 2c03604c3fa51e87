// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3dataclaim

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/controller/metal3data"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
)

// bound is the data that the status of a claim names; nil if it names none, or none that is the claim's.
func (r *Reconciler) bound(ctx context.Context, claim *infrav1.Metal3DataClaim) (*infrav1.Metal3Data, error) {
	if claim.Status.RenderedData == nil || claim.Status.RenderedData.Name == "" {
		return nil, nil
	}
	return r.data(ctx, claim, claim.Status.RenderedData.Name)
}

// data reads data by its name; nil if there is none, or it is not the claim's.
func (r *Reconciler) data(ctx context.Context, claim *infrav1.Metal3DataClaim, name string) (*infrav1.Metal3Data, error) {
	key := types.NamespacedName{Namespace: claim.Namespace, Name: name}
	for _, reader := range []client.Reader{r.Client, r.Live} {
		data := &infrav1.Metal3Data{}
		err := reader.Get(ctx, key, data)
		if outcome.IgnoreGone(err) != nil {
			return nil, fmt.Errorf("reading Metal3Data %s: %w", key, err)
		}
		if err == nil && dataplan.Belongs(data, claim) {
			return data, nil
		}
	}
	return nil, nil
}

// find is the name of data that a claim has though its status does not say so: after a crash, or a move, which leaves the status
// behind. The cache is asked first, then the API server, as data may be younger than what the cache shows. A claim without finalizer was never served: the only data that it can have was restored, as the
// claim was, and is in the cache.
func (r *Reconciler) find(ctx context.Context, claim *infrav1.Metal3DataClaim) (string, error) {
	cached, err := r.cached(ctx, claim)
	if err != nil {
		return "", err
	}
	for i := range cached {
		if cached[i].DeletionTimestamp.IsZero() {
			return cached[i].Name, nil
		}
	}
	if !controllerutil.ContainsFinalizer(claim, infrav1.ClaimFinalizer) {
		return "", nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(infrav1.GroupVersion.WithKind(infrav1.Metal3DataKind + "List"))
	if err := r.Live.List(ctx, list, client.InNamespace(claim.Namespace)); err != nil {
		return "", fmt.Errorf("listing the Metal3Data of Metal3DataClaim %s: %w", claim.Name, err)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp.IsZero() && dataplan.Belongs(&list.Items[i], claim) {
			return list.Items[i].Name, nil
		}
	}
	return "", nil
}

// cached is all data of a claim that the cache shows.
func (r *Reconciler) cached(ctx context.Context, claim *infrav1.Metal3DataClaim) ([]infrav1.Metal3Data, error) {
	list := &infrav1.Metal3DataList{}
	err := r.Client.List(ctx, list, client.InNamespace(claim.Namespace), client.MatchingFields{metal3data.ByClaim: claim.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the Metal3Data of Metal3DataClaim %s: %w", claim.Name, err)
	}
	var out []infrav1.Metal3Data
	for i := range list.Items {
		if dataplan.Belongs(&list.Items[i], claim) {
			out = append(out, list.Items[i])
		}
	}
	return out, nil
}

// create makes the data of a claim under the lowest index that is free. Where the name is taken, the object is read: this
// claim's own is kept, another claim's makes the index taken, and the next one is tried at once.
func (r *Reconciler) create(ctx context.Context, claim *infrav1.Metal3DataClaim, template *infrav1.Metal3DataTemplate) (string, error) {
	list := &infrav1.Metal3DataList{}
	err := r.Client.List(ctx, list, client.InNamespace(claim.Namespace), client.MatchingFields{metal3data.ByTemplate: template.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return "", fmt.Errorf("listing the Metal3Data of Metal3DataTemplate %s: %w", template.Name, err)
	}
	taken := map[int]bool{}
	for i := range list.Items {
		taken[list.Items[i].Spec.Index] = true
	}
	for ctx.Err() == nil {
		index := r.indexes.lowest(client.ObjectKeyFromObject(template), client.ObjectKeyFromObject(claim), taken)
		data := newData(claim, template, index)
		err := r.Client.Create(ctx, data, client.FieldOwner(FieldOwner))
		if err == nil {
			ctrl.LoggerFrom(ctx).Info("Claim has its index", "Metal3Data", data.Name, "index", index)
			r.Recorder.Eventf(claim, data, corev1.EventTypeNormal, reasonIndexGiven, "Claim", "The claim has index %d of Metal3DataTemplate %s", index, template.Name)
			return data.Name, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", fmt.Errorf("creating Metal3Data %s: %w", data.Name, err)
		}
		if own, err := r.data(ctx, claim, data.Name); own != nil || err != nil {
			return data.Name, err
		}
		taken[index] = true
	}
	return "", ctx.Err()
}

// newData is the Metal3Data of a claim.
func newData(claim *infrav1.Metal3DataClaim, template *infrav1.Metal3DataTemplate, index int) *infrav1.Metal3Data {
	machine, _ := dataplan.MachineOf(claim)
	data := &infrav1.Metal3Data{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: template.Name + "-" + strconv.Itoa(index),
			Labels: maps.Clone(claim.Labels), Finalizers: []string{infrav1.DataFinalizer}, OwnerReferences: dataplan.Owners(template, claim, machine),
		},
		Spec: infrav1.Metal3DataSpec{
			Index:             index,
			TemplateReference: template.Spec.TemplateReference,
			Template:          infrav1.ObjectReference{Name: template.Name, Namespace: template.Namespace},
			Claim:             infrav1.ObjectReference{Name: claim.Name, Namespace: claim.Namespace},
		},
	}
	data.Spec.MetaData, data.Spec.NetworkData = dataplan.Secrets(template, machine.Name)
	return data
}

// publish makes a claim name its data.
func (r *Reconciler) publish(ctx context.Context, claim *infrav1.Metal3DataClaim, name string) error {
	before := claim.DeepCopy()
	claim.Status = infrav1.Metal3DataClaimStatus{RenderedData: &infrav1.ObjectReference{Name: name, Namespace: claim.Namespace}}
	if err := r.patchStatus(ctx, claim, before); err != nil {
		return err
	}
	r.note(claim, allocate.WhyServed)
	return nil
}

// refuse writes to a claim why it has no data, and an event when that changes.
func (r *Reconciler) refuse(ctx context.Context, claim *infrav1.Metal3DataClaim, why allocate.Why, message string) error {
	if written := claim.Status.ErrorMessage; written != nil && *written == message && claim.Status.RenderedData == nil {
		r.note(claim, why)
		return nil
	}
	before := claim.DeepCopy()
	claim.Status = infrav1.Metal3DataClaimStatus{ErrorMessage: &message}
	if err := r.patchStatus(ctx, claim, before); err != nil {
		return err
	}
	r.note(claim, why)
	ctrl.LoggerFrom(ctx).Info("Claim waits", "why", why, "message", message)
	r.Recorder.Eventf(claim, nil, corev1.EventTypeWarning, string(why), "Claim", "%s", message)
	return nil
}

func (r *Reconciler) patchStatus(ctx context.Context, claim, before *infrav1.Metal3DataClaim) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := outcome.IgnoreGone(r.Client.Status().Patch(ctx, claim, patch, client.FieldOwner(FieldOwner))); err != nil {
		return fmt.Errorf("writing the status of Metal3DataClaim %s: %w", claim.Name, err)
	}
	return nil
}

// tidy deletes data that a claim has beside the one that it names, and clears an error that is over.
func (r *Reconciler) tidy(ctx context.Context, claim *infrav1.Metal3DataClaim, name string) error {
	all, err := r.cached(ctx, claim)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].Name == name {
			continue
		}
		ctrl.LoggerFrom(ctx).Info("Took back the second data of a claim", "Metal3Data", all[i].Name)
		if err := r.delete(ctx, &all[i]); err != nil {
			return err
		}
	}
	if claim.Status.ErrorMessage != nil {
		return r.publish(ctx, claim, name)
	}
	return r.finalize(ctx, claim, true)
}

// release deletes the data of a deleted claim, and removes the finalizer of the claim when it is gone.
func (r *Reconciler) release(ctx context.Context, claim *infrav1.Metal3DataClaim) error {
	if !controllerutil.ContainsFinalizer(claim, infrav1.ClaimFinalizer) {
		return nil
	}
	all, err := r.cached(ctx, claim)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		bound, err := r.bound(ctx, claim)
		if err != nil {
			return err
		}
		if bound != nil {
			all = append(all, *bound)
		}
	}
	for i := range all {
		if err := r.delete(ctx, &all[i]); err != nil {
			return err
		}
	}
	if len(all) > 0 {
		return nil // the end of the last one wakes the claim
	}
	return r.finalize(ctx, claim, false)
}

func (r *Reconciler) delete(ctx context.Context, data *infrav1.Metal3Data) error {
	if !data.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := outcome.IgnoreGone(r.Client.Delete(ctx, data, client.Preconditions{UID: &data.UID})); err != nil {
		return fmt.Errorf("deleting Metal3Data %s: %w", data.Name, err)
	}
	return nil
}

// finalize puts the finalizer on a claim, or takes it off, unless that is so already.
func (r *Reconciler) finalize(ctx context.Context, claim *infrav1.Metal3DataClaim, on bool) error {
	before := claim.DeepCopy()
	change := controllerutil.RemoveFinalizer
	if on {
		change = controllerutil.AddFinalizer
	}
	if !change(claim, infrav1.ClaimFinalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := outcome.IgnoreGone(r.Client.Patch(ctx, claim, patch, client.FieldOwner(FieldOwner))); err != nil {
		return fmt.Errorf("writing the finalizers of Metal3DataClaim %s: %w", claim.Name, err)
	}
	return nil
}
