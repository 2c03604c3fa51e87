// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipclaimset serves IPClaims that ask for several addresses: it makes an IPClaim for each one beside the first, and collects what these have in the status.
//
// It locks and frees no address: that is done for each IPClaim alone. The garbage collector deletes them with the claim that they were made for.
package ipclaimset

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
	"github.com/muster-io/muster/ipam-operator/internal/setplan"
)

// FieldOwner is the name that writes of this controller carry.
const FieldOwner = "ipam-operator/ipclaimset"

// Recorder writes events about claims.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Deps is what the controller works with.
type Deps struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Clusters reports what is paused.
	Clusters *capi.Clusters
	// Filter selects the objects that are served.
	Filter capi.WatchFilter
	// Recorder writes events.
	Recorder Recorder
	// Namespace is the only one whose objects are served; empty for all.
	Namespace string
	// Workers is how many claims are served at once.
	Workers int
}

// Reconciler serves IPClaims that ask for several addresses.
type Reconciler struct {
	Deps
	control controller.Controller
}

// New returns a Reconciler.
func New(deps Deps) *Reconciler { return &Reconciler{Deps: deps} }

// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims,verbs=get;list;watch;create;update;patch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipaddresses,verbs=get;list;watch

// Reconcile makes the IPClaims of one claim, and collects their addresses.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim, err := r.get(ctx, req.NamespacedName)
	if err != nil || claim == nil {
		return ctrl.Result{}, err
	}
	snapshot, err := r.observe(ctx, claim)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := setplan.Plan(snapshot)
	if err = r.execute(ctx, claim, decision.Actions); err == nil {
		err = r.report(ctx, claim, decision.Report)
	}
	return ctrl.Result{}, err
}

// get reads a claim from the cache; nil means that it is gone or not one to serve here.
func (r *Reconciler) get(ctx context.Context, name types.NamespacedName) (*ipamv1.IPClaim, error) {
	claim := &ipamv1.IPClaim{}
	if err := r.Client.Get(ctx, name, claim); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading IPClaim %s: %w", name, err)
	}
	if !isSet(claim) || !r.Filter.Selects(claim) || !engine.Serves(claim) {
		return nil, nil
	}
	return claim, nil
}

// isSet reports whether a claim asks for several addresses.
func isSet(claim *ipamv1.IPClaim) bool { return len(claim.Spec.AdditionalAddresses) > 0 }
