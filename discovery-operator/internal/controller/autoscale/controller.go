// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscale

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/discovery-operator/internal/scaleplan"
)

// fieldOwner owns the replicas that this controller writes.
const fieldOwner = "discovery-operator/autoscale"

// Reasons of events.
const (
	// EventScaled: a set has another number of replicas.
	EventScaled = "ScaledToHosts"
	// EventHeld: a set keeps more replicas than it has hosts, so that no machine goes that has one.
	EventHeld = "ScaleDownHeld"
	// EventNotFollowing: a set is asked to follow hosts and cannot.
	EventNotFollowing = "NotFollowingHosts"
)

// Counter counts outcomes.
type Counter interface {
	Scaled(up bool)
}

// Deps is what the controllers work with.
type Deps struct {
	// Reader reads from the cache.
	Reader client.Reader
	// Scales writes the scale subresource.
	Scales   client.SubResourceWriter
	Recorder events.EventRecorder
	Counter  Counter
}

// Reconciler makes the sets of one kind follow hosts.
type Reconciler struct {
	Deps
	kinds     kinds
	kind      string
	published notes
}

func newReconciler(d Deps, k kinds, kind string) *Reconciler {
	return &Reconciler{Deps: d, kinds: k, kind: kind, published: notes{last: map[types.NamespacedName]string{}}}
}

// The rights for Cluster API are in deploy/components/autoscale-to-hosts: without them the operator scales no set.

// Reconcile gives a set as many replicas as there are hosts for it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := r.kinds.object(r.kind)
	if err := r.Reader.Get(ctx, req.NamespacedName, set); err != nil {
		r.published.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !follows(set.GetAnnotations()) {
		r.published.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	snapshot, err := r.observe(ctx, set)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := scaleplan.Plan(snapshot)
	if decision.Replicas != snapshot.Replicas {
		if err := r.scale(ctx, set, decision); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	r.tell(ctx, set, decision)
	return ctrl.Result{}, nil
}

// scale writes the replicas of a set, unless the set has changed since it was read.
func (r *Reconciler) scale(ctx context.Context, set *unstructured.Unstructured, d scaleplan.Decision) error {
	scale := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale"}}
	scale.SetNamespace(set.GetNamespace())
	scale.SetName(set.GetName())
	scale.SetUID(set.GetUID())
	scale.SetResourceVersion(set.GetResourceVersion())
	if err := unstructured.SetNestedField(scale.Object, int64(d.Replicas), "spec", "replicas"); err != nil {
		return wrap(err, "writing a scale")
	}
	err := r.Scales.Update(ctx, set.DeepCopy(), client.WithSubResourceBody(scale), client.FieldOwner(fieldOwner))
	return wrap(err, "scaling %s %s to %d", r.kind, client.ObjectKeyFromObject(set), d.Replicas)
}

// tell publishes events: each change of a set, and once what has to be done about a set that is left as it is.
func (r *Reconciler) tell(ctx context.Context, set *unstructured.Unstructured, d scaleplan.Decision) {
	log := ctrl.LoggerFrom(ctx)
	switch d.Why {
	case scaleplan.MoreHosts, scaleplan.FewerHosts:
		r.published.forget(client.ObjectKeyFromObject(set))
		r.Counter.Scaled(d.Why == scaleplan.MoreHosts)
		r.Recorder.Eventf(set, nil, corev1.EventTypeNormal, EventScaled, "Scale", "%s", d.Note)
		log.Info("set scaled", "replicas", d.Replicas, "why", d.Why)
		return
	case scaleplan.HealthyMachines:
		if r.published.isNew(client.ObjectKeyFromObject(set), d.Note) {
			r.Recorder.Eventf(set, nil, corev1.EventTypeWarning, EventHeld, "Scale", "%s", d.Note)
		}
	case scaleplan.OtherAutoscaler, scaleplan.TemplateMissing, scaleplan.OtherInfrastructure, scaleplan.SelectorInvalid:
		if r.published.isNew(client.ObjectKeyFromObject(set), d.Note) {
			r.Recorder.Eventf(set, nil, corev1.EventTypeWarning, EventNotFollowing, "Scale", "%s", d.Note)
		}
	default:
		r.published.forget(client.ObjectKeyFromObject(set))
	}
	log.V(1).Info("set left as it is", "replicas", d.Replicas, "why", d.Why)
}

// notes remembers the last event of each set, so that each is published once. After a restart it is published again.
type notes struct {
	mu   sync.Mutex
	last map[types.NamespacedName]string
}

func (n *notes) isNew(set types.NamespacedName, note string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last[set] == note {
		return false
	}
	n.last[set] = note
	return true
}

func (n *notes) forget(set types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.last, set)
}
