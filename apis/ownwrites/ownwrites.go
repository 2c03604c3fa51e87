// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownwrites remembers which versions of objects this process wrote, until a cache shows them.
//
// Correctness does not depend on it: the API server arbitrates. It spares the passes that would start from a view older than their own
// writes, and the conflicts that these would end with.
package ownwrites

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Memory is the last resourceVersion that this process wrote of each object whose cache is behind. Objects are known by their name, or by
// their UID. The zero value is empty and ready for use by several goroutines.
type Memory[Key comparable] struct {
	mu       sync.Mutex
	versions map[Key]string
}

// Wrote remembers the version that an object has after a write.
func (m *Memory[Key]) Wrote(object Key, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.versions == nil {
		m.versions = map[Key]string{}
	}
	m.versions[object] = version
}

// Ahead reports whether this process wrote an object after the version that a cache shows. Once the cache shows the write, the object is
// forgotten. Versions that cannot be compared are not ahead.
func (m *Memory[Key]) Ahead(object Key, cached string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	written, ok := m.versions[object]
	if !ok {
		return false
	}
	if order, err := resourceversion.CompareResourceVersion(cached, written); err == nil && order < 0 {
		return true
	}
	delete(m.versions, object)
	return false
}

// Forget ends the memory of an object that is gone.
func (m *Memory[Key]) Forget(object Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.versions, object)
}
