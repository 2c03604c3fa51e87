// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// object is an object of another project's kind.
type object struct {
	kind schema.GroupKind
	name types.NamespacedName
}

// waits is which data was rendered from which objects, or waits for them.
type waits struct {
	mu      sync.Mutex
	data    map[object]map[types.NamespacedName]struct{}
	objects map[types.NamespacedName][]object
}

func newWaits() *waits {
	return &waits{data: map[object]map[types.NamespacedName]struct{}{}, objects: map[types.NamespacedName][]object{}}
}

// on notes that data depends on an object. It is called before the object is read, so that no change is missed.
func (w *waits) on(data types.NamespacedName, obj object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.data[obj] == nil {
		w.data[obj] = map[types.NamespacedName]struct{}{}
	}
	w.data[obj][data] = struct{}{}
	w.objects[data] = append(w.objects[data], obj)
}

// drop forgets data.
func (w *waits) drop(data types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, obj := range w.objects[data] {
		delete(w.data[obj], data)
		if len(w.data[obj]) == 0 {
			delete(w.data, obj)
		}
	}
	delete(w.objects, data)
}

// of is the data that depends on an object.
func (w *waits) of(obj object) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]types.NamespacedName, 0, len(w.data[obj]))
	for data := range w.data[obj] {
		out = append(out, data)
	}
	return out
}

// kinds is the served versions of other projects' kinds.
type kinds struct{ served sync.Map }

func (k *kinds) set(kind schema.GroupVersionKind) { k.served.Store(kind.GroupKind(), kind) }

func (k *kinds) get(kind schema.GroupKind) (schema.GroupVersionKind, bool) {
	served, ok := k.served.Load(kind)
	if !ok {
		return schema.GroupVersionKind{}, false
	}
	return served.(schema.GroupVersionKind), true
}
