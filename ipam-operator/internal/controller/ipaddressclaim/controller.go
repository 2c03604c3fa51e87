// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipaddressclaim

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// Controller serves IPAddressClaims.
type Controller struct {
	kinds   Kinds
	kind    *claims
	claims  *engine.Reconciler
	cache   cache.Cache
	control controller.Controller
}

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch;create;update;patch;delete

// New returns a Controller that serves claims with a Reconciler of their kind.
func New(kinds Kinds, reconciler *engine.Reconciler, c cache.Cache) *Controller {
	kind := &claims{kinds: kinds, cache: c, live: reconciler.Live, client: reconciler.Client}
	return &Controller{kinds: kinds, kind: kind, claims: reconciler, cache: c}
}

// Reconcile serves a claim. It first removes the leftovers of former claims of its name.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := c.sweep(ctx, req.NamespacedName); err != nil {
		return ctrl.Result{}, err
	}
	return c.claims.Reconcile(ctx, req)
}
