// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conflict ends passes of controllers that lost an object to another writer.
package conflict

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	shortest = 20 * time.Millisecond
	spread   = 80 * time.Millisecond
)

// Delay is when a pass that lost a race begins again: from 20 ms on and before 100 ms, so that those who compete do not meet again.
func Delay() time.Duration {
	return shortest + rand.N(spread) //nolint:gosec // spreads competitors, hides nothing
}

// Retried is a reconciler whose pass begins again soon where it ends with a conflict: a lost race is no error, and is logged as none.
func Retried[Request comparable](r reconcile.TypedReconciler[Request]) reconcile.TypedReconciler[Request] {
	return reconcile.TypedFunc[Request](func(ctx context.Context, request Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, request)
		if !apierrors.IsConflict(err) {
			return result, err
		}
		logf.FromContext(ctx).V(1).Info("lost an object to another writer and begins again", "cause", err.Error())
		return reconcile.Result{RequeueAfter: Delay()}, nil
	})
}
