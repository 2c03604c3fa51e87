// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
)

// template of a Metal3Data; nil means that it is gone.
func (r *Reconciler) template(ctx context.Context, data *infrav1.Metal3Data) (*infrav1.Metal3DataTemplate, error) {
	template := &infrav1.Metal3DataTemplate{}
	key := types.NamespacedName{Namespace: data.Namespace, Name: data.Spec.Template.Name}
	if err := r.Client.Get(ctx, key, template); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading Metal3DataTemplate %s: %w", key, err)
	}
	return template, nil
}

// claim that a Metal3Data belongs to; nil means that it is gone, and the API server says so.
func (r *Reconciler) claim(ctx context.Context, data *infrav1.Metal3Data) (*infrav1.Metal3DataClaim, error) {
	key := types.NamespacedName{Namespace: data.Namespace, Name: data.Spec.Claim.Name}
	for _, reader := range []client.Reader{r.Client, r.Live} {
		claim := &infrav1.Metal3DataClaim{}
		err := reader.Get(ctx, key, claim)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading Metal3DataClaim %s: %w", key, err)
		}
		if err == nil && Belongs(data, claim) {
			return claim, nil
		}
	}
	return nil, nil
}

// Belongs reports whether a Metal3Data is that of a claim. A claim that was created again under its name is another one: the
// owner reference decides by UID. Where there is none, the garbage collector may have removed it because that claim is gone.
func Belongs(data, claim client.Object) bool {
	for _, owner := range data.GetOwnerReferences() {
		if owner.Kind == infrav1.Metal3DataClaimKind && owner.Name == claim.GetName() {
			return owner.UID == claim.GetUID()
		}
	}
	of, ok := data.(*infrav1.Metal3Data)
	created := claim.GetCreationTimestamp()
	return ok && of.Spec.Claim.Name == claim.GetName() && !created.After(of.CreationTimestamp.Time)
}

// isRendered reports whether everything is done: the Secrets are there, and the status says so. Where the status says nothing, as after a move, Secrets
// that were rendered for this data say it: what they were rendered from is not asked for again.
func (r *Reconciler) isRendered(ctx context.Context, data *infrav1.Metal3Data) (bool, error) {
	isSaid := data.Status.Ready && data.Status.ErrorMessage == nil
	isShown := false
	for _, ref := range []*infrav1.SecretReference{data.Spec.MetaData, data.Spec.NetworkData} {
		if ref == nil || ref.Name == "" {
			continue
		}
		found, err := r.findSecret(ctx, data, ref.Name)
		if _, told := isRefusal(err); told {
			return false, nil
		}
		if found == nil || err != nil {
			return false, err
		}
		if isShown = metav1.IsControlledBy(found, data); !isSaid && !isShown {
			return false, nil
		}
	}
	return isSaid || isShown, nil
}

// secret reports whether a Secret is there and can be used.
func (r *Reconciler) secret(ctx context.Context, data *infrav1.Metal3Data, name string) (bool, error) {
	found, err := r.findSecret(ctx, data, name)
	return found != nil, err
}

// findSecret finds a Secret that can be used; nil means that there is none. One that another Metal3Data left behind is on its way out and must not be used;
// a user made one that no Metal3Data owns, to be used.
func (r *Reconciler) findSecret(ctx context.Context, data *infrav1.Metal3Data, name string) (*metav1.PartialObjectMetadata, error) {
	key := types.NamespacedName{Namespace: data.Namespace, Name: name}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Client.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, found) // only Secrets of the rendered type are in the cache
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	if owner := metav1.GetControllerOf(found); owner != nil && owner.Kind == infrav1.Metal3DataKind && owner.UID != data.UID {
		return nil, refuse("Secret %s belongs to another Metal3Data, %s", name, owner.Name)
	}
	if !found.DeletionTimestamp.IsZero() {
		return nil, refuse("Secret %s is being deleted", name)
	}
	return found, nil
}
