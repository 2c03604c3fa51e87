// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// holdInputs is everything that a hold reads of a pool, a claim or an address. The decision and the watches have this one table.
type holdInputs struct {
	// paused says that the object has the pause annotation.
	paused bool
	// marked says that a mover has marked the object, to delete it here.
	marked bool
	// moves says that the object moves without an owner.
	moves bool
	// cluster is the Cluster that the label of the object names.
	cluster string
	// deleting says that the object is being deleted.
	deleting bool
}

func holdInputsOf(obj client.Object) holdInputs {
	_, paused := obj.GetAnnotations()[ipamv1.PausedAnnotation]
	_, marked := obj.GetAnnotations()[ipamv1.DeleteForMoveAnnotation]
	_, moves := obj.GetLabels()[moveLabel]
	return holdInputs{paused, marked, moves, obj.GetLabels()[ipamv1.ClusterNameLabel], !obj.GetDeletionTimestamp().IsZero()}
}

// HoldChanged reports whether an update of a pool, a claim or an address changes what Hold reads of its metadata.
func HoldChanged(before, after client.Object) bool {
	return holdInputsOf(before) != holdInputsOf(after)
}

// isStopped is everything that a hold reads of a Cluster that is there.
func isStopped(cluster client.Object) bool {
	if content, ok := cluster.(*unstructured.Unstructured); ok {
		if stop, _, _ := unstructured.NestedBool(content.Object, "spec", "paused"); stop {
			return true
		}
	}
	return IsPaused(cluster)
}

// Held is the objects of a kind that were held up when they were looked at last. Their changes meanwhile are handled when they go on. It is safe
// for concurrent use.
type Held struct {
	mu      sync.Mutex
	held    map[string]map[types.NamespacedName]bool // by namespace
	other   map[types.NamespacedName]string          // the other namespace under which an object is held up, too
	suspect map[types.NamespacedName]bool
}

// NewHeld returns a Held without objects.
func NewHeld() *Held {
	return &Held{held: map[string]map[types.NamespacedName]bool{}, other: map[types.NamespacedName]string{}, suspect: map[types.NamespacedName]bool{}}
}

// Expect notes that an object may be held up, by objects of its namespace or of another one. It is called before the hold is read, so that no change of what it reads
// is missed.
func (h *Held) Expect(name types.NamespacedName, other string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expect(name.Namespace, name)
	if other != name.Namespace {
		h.expect(other, name)
		h.other[name] = other
	}
}

func (h *Held) expect(namespace string, name types.NamespacedName) {
	if h.held[namespace] == nil {
		h.held[namespace] = map[types.NamespacedName]bool{}
	}
	h.held[namespace][name] = true
}

// Note says that the hold of an object was read, and whether it is held up. The cache is then not trusted to know all that happens to the object until Trust is
// called.
func (h *Held) Note(name types.NamespacedName, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held {
		h.suspect[name] = true
		return
	}
	h.wake(name.Namespace, name)
	if other, ok := h.other[name]; ok {
		h.wake(other, name)
		delete(h.other, name)
	}
}

func (h *Held) wake(namespace string, name types.NamespacedName) {
	delete(h.held[namespace], name)
	if len(h.held[namespace]) == 0 {
		delete(h.held, namespace)
	}
}

// Wake returns the objects of a namespace to look at. Those that are held up still are expected and noted again.
func (h *Held) Wake(namespace string) []types.NamespacedName {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]types.NamespacedName, 0, len(h.held[namespace]))
	for name := range h.held[namespace] {
		out = append(out, name)
	}
	delete(h.held, namespace)
	return out
}

// IsSuspect reports whether an object was held up and is not trusted yet.
func (h *Held) IsSuspect(name types.NamespacedName) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.suspect[name]
}

// Trust says that the API server was asked about an object, or that the object is gone.
func (h *Held) Trust(name types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.suspect, name)
}
