// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metal3dataclaim gives every claim of network data its index in the template, as a Metal3Data.
//
// The name of the Metal3Data is the lock: it is made from the template and the index, so that the API server lets one claim
// have it. The status of the claim comes after it and under the claim's resourceVersion: it never names the data of another
// claim, and a claim has one. A crash between the two heals, as the data is found by its owner.
package metal3dataclaim

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
)

// FieldOwner is the name that writes of this controller carry.
const FieldOwner = "ipam-operator/metal3dataclaim"

// reasonIndexGiven is the reason of the event that says that the claim has its data.
const reasonIndexGiven = "IndexGiven"

// WhyNoMachine is the reason of a claim without a machine, in logs, events and metrics.
const WhyNoMachine allocate.Why = "NoMachine"

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
	// Metrics measures.
	Metrics *metrics.NetworkData
	// Workers is how many claims are served at once.
	Workers int
}

// Reconciler serves claims.
type Reconciler struct {
	Deps
	indexes *indexes
	control controller.Controller
}

// New returns a Reconciler.
func New(deps Deps) *Reconciler { return &Reconciler{Deps: deps, indexes: newIndexes()} }

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3dataclaims,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3dataclaims/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datas,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3datatemplates,verbs=get;list;watch

// Reconcile gives one claim its data, or takes it back.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim := &infrav1.Metal3DataClaim{}
	err := r.Client.Get(ctx, req.NamespacedName, claim)
	if apierrors.IsNotFound(err) {
		r.indexes.forget(req.NamespacedName)
		r.Metrics.Claims.Gone(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading Metal3DataClaim %s: %w", req, err)
	}
	if !r.Filter.Selects(claim) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.serve(ctx, claim)
}

func (r *Reconciler) serve(ctx context.Context, claim *infrav1.Metal3DataClaim) error {
	template, hold, err := r.observe(ctx, claim)
	if err != nil {
		return err
	}
	if hold == allocate.HeldPaused {
		r.note(claim, allocate.WhyPaused)
		return nil
	}
	if !claim.DeletionTimestamp.IsZero() {
		r.note(claim, allocate.WhyDeleted)
		return r.release(ctx, claim)
	}
	bound, err := r.bound(ctx, claim)
	if err != nil {
		return err
	}
	if bound != nil {
		r.note(claim, allocate.WhyServed)
		return r.tidy(ctx, claim, bound.Name)
	}
	if why, message := refusal(claim, template, hold); why != "" {
		return r.refuse(ctx, claim, why, message)
	}
	return r.give(ctx, claim, template)
}

// note counts a claim that has no data, and why. A claim that is being deleted does not count.
func (r *Reconciler) note(claim *infrav1.Metal3DataClaim, why allocate.Why) {
	key := client.ObjectKeyFromObject(claim)
	if !claim.DeletionTimestamp.IsZero() || claim.Status.RenderedData != nil {
		r.Metrics.Claims.Gone(key)
		return
	}
	r.Metrics.Claims.Waits(key, why)
}

// refusal is why a claim gets nothing for now, and says it to its user; empty for one that gets its data.
func refusal(claim *infrav1.Metal3DataClaim, template *infrav1.Metal3DataTemplate, hold allocate.Hold) (why allocate.Why, message string) {
	_, isFor := dataplan.MachineOf(claim)
	switch ns := claim.Spec.Template.Namespace; {
	case ns != "" && ns != claim.Namespace:
		return dataplan.WhyTemplateNotFound, "Metal3DataTemplate " + claim.Spec.Template.Name + " is in namespace " + ns + "; a claim is served from templates of its own namespace"
	case template == nil:
		return dataplan.WhyTemplateNotFound, "Metal3DataTemplate " + claim.Spec.Template.Name + " not found"
	case !template.DeletionTimestamp.IsZero():
		return dataplan.WhyTemplateNotFound, "Metal3DataTemplate " + template.Name + " is being deleted"
	case hold == allocate.HeldClusterMissing:
		return allocate.WhyClusterNotFound, "Cluster " + template.Spec.ClusterName + " not found"
	case !isFor:
		return WhyNoMachine, dataplan.NoOwner
	default:
		return "", ""
	}
}

// give finds the data that a claim has already, or makes it, and makes the claim name it.
func (r *Reconciler) give(ctx context.Context, claim *infrav1.Metal3DataClaim, template *infrav1.Metal3DataTemplate) error {
	name, err := r.find(ctx, claim)
	if err != nil {
		return err
	}
	if err := r.finalize(ctx, claim, true); err != nil {
		return err
	}
	if name == "" {
		if name, err = r.create(ctx, claim, template); err != nil {
			return err
		}
	}
	if err := r.publish(ctx, claim, name); err != nil {
		return err
	}
	return r.tidy(ctx, claim, name)
}
