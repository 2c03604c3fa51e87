// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/discovery-operator/internal/scaleplan"
)

// Indexes.
const (
	// consumerIndex finds hosts by who uses them.
	consumerIndex = "autoscale-consumer"
	// metal3MachineIndex finds machines by their Metal3Machine.
	metal3MachineIndex = "metal3machine"
	// ownerIndex finds MachineSets and machines by the UID of their controller.
	ownerIndex = "owner"
	// followIndex finds the sets that follow hosts, clusterIndex and templateIndex those of a Cluster and a template.
	followIndex, clusterIndex, templateIndex = "follow", "cluster", "template"
)

// Values of consumerIndex: hosts that are free, and those that a Metal3Machine uses.
const (
	unused = "none"
	used   = "metal3machine"
)

func usedBy(metal3Machine string) string { return used + "/" + metal3Machine }

// settle is how long changes are collected before a set is looked at: hosts of a rack come in crowds.
const settle = 500 * time.Millisecond

// workers is how many sets of a kind are looked at at the same time.
const workers = 4

// passTimeout bounds one pass.
const passTimeout = time.Minute

func indexHosts(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &metal3v1.BareMetalHost{}, consumerIndex, func(o client.Object) []string {
		ref := o.(*metal3v1.BareMetalHost).Spec.ConsumerRef
		if ref == nil {
			return []string{unused}
		}
		if group, _, _ := strings.Cut(ref.APIVersion, "/"); group != infrastructureGroup || ref.Kind != consumerKind {
			return nil
		}
		if ref.Namespace != "" && ref.Namespace != o.GetNamespace() {
			return nil
		}
		return []string{used, usedBy(ref.Name)}
	})
	return wrap(err, "indexing hosts by consumer")
}

func index(ctx context.Context, indexer client.FieldIndexer, k kinds) error {
	owner := func(o *unstructured.Unstructured) string {
		if ref := metav1.GetControllerOf(o); ref != nil {
			return string(ref.UID)
		}
		return ""
	}
	follow := func(o *unstructured.Unstructured) string {
		if follows(o.GetAnnotations()) {
			return "true"
		}
		return ""
	}
	cluster := func(o *unstructured.Unstructured) string { return text(o, "spec", "clusterName") }
	template := func(o *unstructured.Unstructured) string { _, name := templateOf(o); return name }
	for _, i := range []struct {
		kind, name string
		value      func(*unstructured.Unstructured) string
	}{
		{machineKind, ownerIndex, owner},
		{machineKind, metal3MachineIndex, metal3MachineOf},
		{setKind, ownerIndex, owner},
		{setKind, followIndex, follow},
		{setKind, clusterIndex, cluster},
		{setKind, templateIndex, template},
		{deploymentKind, followIndex, follow},
		{deploymentKind, clusterIndex, cluster},
		{deploymentKind, templateIndex, template},
	} {
		err := indexer.IndexField(ctx, k.object(i.kind), i.name, func(o client.Object) []string {
			if value := i.value(o.(*unstructured.Unstructured)); value != "" {
				return []string{value}
			}
			return nil
		})
		if err != nil {
			return wrap(err, "indexing %ss by %s", i.kind, i.name)
		}
	}
	return nil
}

// setupWithManager makes the manager call the reconciler for changes of sets, and of whatever decides about their size.
func (r *Reconciler) setupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("autoscale-"+strings.ToLower(r.kind)).
		For(r.kinds.object(r.kind), builder.WithPredicates(predicate.Funcs{UpdateFunc: changed})).
		Watches(&metal3v1.BareMetalHost{}, r.onChange(func(ctx context.Context, o client.Object) []types.NamespacedName {
			return r.sets(ctx, o.GetNamespace(), client.MatchingFields{followIndex: "true"})
		})).
		Watches(r.kinds.object(clusterKind), r.onChange(func(ctx context.Context, o client.Object) []types.NamespacedName {
			return r.sets(ctx, o.GetNamespace(), client.MatchingFields{clusterIndex: o.GetName()})
		})).
		Watches(r.kinds.object(templateKind), r.onChange(func(ctx context.Context, o client.Object) []types.NamespacedName {
			return r.sets(ctx, o.GetNamespace(), client.MatchingFields{templateIndex: o.GetName()})
		}))
	if r.kind == setKind {
		b = b.Watches(r.kinds.object(machineKind), r.onChange(ownerNamed(setKind)))
	} else {
		b = b.Watches(r.kinds.object(setKind), r.onChange(ownerNamed(deploymentKind))).
			Watches(r.kinds.object(machineKind), r.onChange(r.deploymentOf))
	}
	return b.WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout}).Complete(tracing.Reconciler("autoscale-"+strings.ToLower(r.kind), outcome.Reconciler[ctrl.Request](r)))
}

// sets names the sets of an index. Sets that cannot be listed now are seen with the next change.
func (r *Reconciler) sets(ctx context.Context, namespace string, by client.MatchingFields) []types.NamespacedName {
	list := r.kinds.list(r.kind)
	if err := r.list(ctx, list, namespace, by); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "sets not found")
		return nil
	}
	var out []types.NamespacedName
	for i := range list.Items {
		if follows(list.Items[i].GetAnnotations()) {
			out = append(out, client.ObjectKeyFromObject(&list.Items[i]))
		}
	}
	return out
}

// ownerNamed names the owner of an object.
func ownerNamed(kind string) func(context.Context, client.Object) []types.NamespacedName {
	return func(_ context.Context, o client.Object) []types.NamespacedName {
		owner := metav1.GetControllerOf(o)
		if owner == nil || owner.Kind != kind {
			return nil
		}
		return []types.NamespacedName{{Namespace: o.GetNamespace(), Name: owner.Name}}
	}
}

// deploymentOf names the MachineDeployment of a machine. Where its MachineSet is not known yet, that one's arrival does.
func (r *Reconciler) deploymentOf(ctx context.Context, machine client.Object) []types.NamespacedName {
	for _, name := range ownerNamed(setKind)(ctx, machine) {
		set := r.kinds.object(setKind)
		if r.Reader.Get(ctx, name, set) == nil {
			return ownerNamed(deploymentKind)(ctx, set)
		}
	}
	return nil
}

// onChange has sets looked at in a moment, when something changes that decides about their size.
func (r *Reconciler) onChange(sets func(context.Context, client.Object) []types.NamespacedName) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(ctx context.Context, o client.Object, q queue) {
		for _, name := range sets(ctx, o) {
			q.AddAfter(reconcile.Request{NamespacedName: name}, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if !changed(e) {
				return
			}
			enqueue(ctx, e.ObjectNew, q)
			if !reflect.DeepEqual(e.ObjectOld.GetOwnerReferences(), e.ObjectNew.GetOwnerReferences()) {
				enqueue(ctx, e.ObjectOld, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, e.Object, q) },
	}
}

// changed says whether an update concerns decisions. Of objects of Cluster API the cache holds nothing else.
func changed(e event.UpdateEvent) bool {
	if before, ok := e.ObjectOld.(*metal3v1.BareMetalHost); ok {
		after := e.ObjectNew.(*metal3v1.BareMetalHost)
		return scaleplan.AvailabilityOf(before) != scaleplan.AvailabilityOf(after) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			!maps.Equal(before.Labels, after.Labels) || !reflect.DeepEqual(before.Spec.ConsumerRef, after.Spec.ConsumerRef)
	}
	before, after := e.ObjectOld.(*unstructured.Unstructured), e.ObjectNew.(*unstructured.Unstructured)
	return !reflect.DeepEqual(withoutVersion(before), withoutVersion(after))
}

func withoutVersion(o *unstructured.Unstructured) map[string]any {
	out := maps.Clone(o.Object)
	if metadata, ok := out["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "resourceVersion")
		out["metadata"] = metadata
	}
	return out
}
