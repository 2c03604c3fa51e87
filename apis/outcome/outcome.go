// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outcome maps the error at the end of a pass to what the queue does, and tells what an error says of an object. CONTRIBUTING.md has the table.
package outcome

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	shortest = 20 * time.Millisecond
	spread   = 80 * time.Millisecond
)

// again is an error that ends a pass whose view of the objects is out of date.
type again struct {
	error
	after time.Duration
}

func (a again) Unwrap() error { return a.error }

// Delay is when a pass that lost a race begins again: from 20 ms on and before 100 ms, so that those who compete do not meet again.
func Delay() time.Duration {
	return shortest + rand.N(spread) //nolint:gosec // spreads competitors, hides nothing
}

// Again marks an error as a lost race: the pass begins again after Delay, as after a conflict.
func Again(err error) error { return again{error: err} }

// Pace makes a pass that lost a race begin again after the given time instead of after Delay. Errors of other classes stay as they are.
func Pace(err error, after time.Duration) error {
	if !IsAgain(err) {
		return err
	}
	return again{error: err, after: after}
}

// IsAgain reports whether the pass lost a race: an object changed after it was read, or the view was out of date.
func IsAgain(err error) bool {
	return errors.As(err, new(again)) || apierrors.IsConflict(err)
}

// Of maps the end of a pass to what the queue does. A lost race is no error: it is logged at V(1), and the pass begins again soon. Every
// other error, such as a timeout or throttling, is logged and counted by the controller, which backs off.
func Of(ctx context.Context, result reconcile.Result, err error) (reconcile.Result, error) {
	if !IsAgain(err) {
		return result, err
	}
	logf.FromContext(ctx).V(1).Info("lost an object to another writer and begins again", "cause", err.Error())
	after := Delay()
	if paced, ok := errors.AsType[again](err); ok && paced.after > 0 {
		after = paced.after
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// Reconciler maps the end of every pass of a reconciler with Of.
func Reconciler[Request comparable](r reconcile.TypedReconciler[Request]) reconcile.TypedReconciler[Request] {
	return reconcile.TypedFunc[Request](func(ctx context.Context, request Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, request)
		return Of(ctx, result, err)
	})
}

// IsGone reports whether an error says that an object is not there. Where the API server does not serve its kind for the moment, it says so with 404, too: what was made for the object stays.
func IsGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IgnoreGone returns nil for an error that says that an object is not there, as IsGone does, and any other error as it is.
func IgnoreGone(err error) error {
	if IsGone(err) {
		return nil
	}
	return err
}

// IsRefused reports whether the API server took no such write, by its schema, a quota, a policy or its rights, and will most likely not take it the next time either.
// A namespace that is being deleted takes no objects: that ends with the namespace, and is no refusal.
func IsRefused(err error) bool {
	refused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	return refused && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
