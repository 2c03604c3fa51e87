// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/scaleplan"
)

// observe reads what the decision about a set rests on: the set, its template, its machines with their hosts, and the
// hosts that are free.
func (r *Reconciler) observe(ctx context.Context, set *unstructured.Unstructured) (scaleplan.Snapshot, error) {
	s := scaleplan.Snapshot{Replicas: replicasOf(set)}
	var err error
	if s.Hold, s.Detail, err = r.hold(ctx, set); s.Hold != "" || err != nil {
		return s, err
	}
	if err := r.observeTemplate(ctx, set, &s); s.Hold != "" || err != nil {
		return s, err
	}
	if r.kind == deploymentKind { // no host is kept for a MachineSet alone
		s.Reuse = scaleplan.ReusePrefix + set.GetName()
	}
	if s.Machines, err = r.machines(ctx, set); err != nil {
		return s, err
	}
	if s.Free, err = r.hosts(ctx, set.GetNamespace(), unused); err != nil {
		return s, err
	}
	if int(s.Replicas) > len(s.Machines) || hostless(s.Machines) {
		s.Unknown, err = r.unknown(ctx, set.GetNamespace()) // matters only to a set that might shrink
	}
	return s, err
}

func hostless(machines []scaleplan.Machine) bool {
	for _, m := range machines {
		if !m.HasHost {
			return true
		}
	}
	return false
}

// hold says why a set is left alone.
func (r *Reconciler) hold(ctx context.Context, set *unstructured.Unstructured) (why scaleplan.Why, detail string, err error) {
	if set.GetDeletionTimestamp() != nil {
		return scaleplan.Deleting, "", nil
	}
	if owner := metav1.GetControllerOf(set); owner != nil && owner.Kind == deploymentKind {
		return scaleplan.Owned, "", nil // it has the annotation because Cluster API copies those of the MachineDeployment
	}
	if isPaused(set) {
		return scaleplan.Paused, "", nil
	}
	cluster := r.kinds.object(clusterKind)
	err = r.Reader.Get(ctx, types.NamespacedName{Namespace: set.GetNamespace(), Name: text(set, "spec", "clusterName")}, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return scaleplan.ClusterMissing, "", nil
	case err != nil:
		return "", "", wrap(err, "reading the Cluster of %s", client.ObjectKeyFromObject(set))
	case isPaused(cluster):
		return scaleplan.Paused, "", nil
	}
	for _, key := range []string{minSizeAnnotation, maxSizeAnnotation} {
		if _, ok := set.GetAnnotations()[key]; ok {
			return scaleplan.OtherAutoscaler, key, nil
		}
	}
	return "", "", nil
}

// isPaused says whether Cluster API leaves an object alone.
func isPaused(o *unstructured.Unstructured) bool {
	_, annotated := o.GetAnnotations()[pausedAnnotation]
	return annotated || flag(o, "spec", "paused")
}

// observeTemplate finds out which hosts machines of the set can have.
func (r *Reconciler) observeTemplate(ctx context.Context, set *unstructured.Unstructured, s *scaleplan.Snapshot) error {
	kind, name := templateOf(set)
	if kind != (schema.GroupKind{Group: infrastructureGroup, Kind: templateKind}) {
		s.Hold, s.Detail = scaleplan.OtherInfrastructure, kind.Kind
		return nil
	}
	template := r.kinds.object(templateKind)
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: set.GetNamespace(), Name: name}, template)
	if apierrors.IsNotFound(err) {
		s.Hold, s.Detail = scaleplan.TemplateMissing, templateKind+" "+name
		return nil
	} else if err != nil {
		return wrap(err, "reading %s %s/%s", templateKind, set.GetNamespace(), name)
	}
	if s.Selector, err = selectorOf(template); err != nil {
		s.Hold, s.Detail = scaleplan.SelectorInvalid, err.Error()
	}
	return nil
}

// machines are those of a set: of the MachineSet itself, or of all MachineSets of the MachineDeployment.
func (r *Reconciler) machines(ctx context.Context, set *unstructured.Unstructured) ([]scaleplan.Machine, error) {
	owners := []types.UID{set.GetUID()}
	if r.kind == deploymentKind {
		sets := r.kinds.list(setKind)
		if err := r.list(ctx, sets, set.GetNamespace(), client.MatchingFields{ownerIndex: string(set.GetUID())}); err != nil {
			return nil, err
		}
		owners = owners[:0]
		for i := range sets.Items {
			owners = append(owners, sets.Items[i].GetUID())
		}
	}
	var out []scaleplan.Machine
	for _, owner := range owners {
		list := r.kinds.list(machineKind)
		if err := r.list(ctx, list, set.GetNamespace(), client.MatchingFields{ownerIndex: string(owner)}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			has, err := r.hasHost(ctx, &list.Items[i])
			if err != nil {
				return nil, err
			}
			out = append(out, scaleplan.Machine{HasHost: has, Order: orderOf(&list.Items[i], has), Set: string(owner)})
		}
	}
	return out, nil
}

// hasHost says whether a machine has a host that stays.
func (r *Reconciler) hasHost(ctx context.Context, machine *unstructured.Unstructured) (bool, error) {
	name := metal3MachineOf(machine)
	if name == "" {
		return false, nil
	}
	var list metal3v1.BareMetalHostList
	if err := r.list(ctx, &list, machine.GetNamespace(), client.MatchingFields{consumerIndex: usedBy(name)}); err != nil {
		return false, err
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp.IsZero() {
			return true, nil
		}
	}
	return false, nil
}

func (r *Reconciler) hosts(ctx context.Context, namespace, use string) ([]scaleplan.Host, error) {
	var list metal3v1.BareMetalHostList
	if err := r.list(ctx, &list, namespace, client.MatchingFields{consumerIndex: use}); err != nil {
		return nil, err
	}
	out := make([]scaleplan.Host, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, scaleplan.Host{Labels: list.Items[i].Labels, Availability: scaleplan.AvailabilityOf(&list.Items[i])})
	}
	return out, nil
}

// unknown are the hosts that belong to a Metal3Machine whose machine, or whose machine's set, is not in the cache: each kind
// is watched by itself, and one may lag behind another.
func (r *Reconciler) unknown(ctx context.Context, namespace string) ([]scaleplan.Host, error) {
	var list metal3v1.BareMetalHostList
	if err := r.list(ctx, &list, namespace, client.MatchingFields{consumerIndex: used}); err != nil {
		return nil, err
	}
	var out []scaleplan.Host
	for i := range list.Items {
		machines := r.kinds.list(machineKind)
		name := list.Items[i].Spec.ConsumerRef.Name
		if err := r.list(ctx, machines, namespace, client.MatchingFields{metal3MachineIndex: name}); err != nil {
			return nil, err
		}
		known := false
		for m := range machines.Items {
			has, err := r.ownerKnown(ctx, &machines.Items[m])
			if err != nil {
				return nil, err
			}
			known = known || has
		}
		if !known {
			out = append(out, scaleplan.Host{Labels: list.Items[i].Labels})
		}
	}
	return out, nil
}

// ownerKnown says whether the MachineSet of a machine is in the cache; machines that belong to something else are known.
func (r *Reconciler) ownerKnown(ctx context.Context, machine *unstructured.Unstructured) (bool, error) {
	owner := metav1.GetControllerOf(machine)
	if owner == nil || owner.Kind != setKind {
		return true, nil
	}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: machine.GetNamespace(), Name: owner.Name}, r.kinds.object(setKind))
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, wrap(err, "reading the MachineSet of machine %s", client.ObjectKeyFromObject(machine))
}

// list reads from the cache without copying: nothing here changes what it read.
func (r *Reconciler) list(ctx context.Context, list client.ObjectList, namespace string, by client.MatchingFields) error {
	err := r.Reader.List(ctx, list, client.InNamespace(namespace), by, client.UnsafeDisableDeepCopy)
	return wrap(err, "listing for a set in namespace %s", namespace)
}
