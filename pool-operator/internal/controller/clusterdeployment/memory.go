// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// memory knows what this process wrote and may not have seen in its cache yet. Correctness does not depend on it: it spares passes that begin with a
// view older than their own writes, which would write the Secrets again and then run into a conflict.
type memory struct {
	mu      sync.Mutex
	written map[types.NamespacedName]string
}

// wrote remembers the version that the cluster has after a write.
func (m *memory) wrote(key types.NamespacedName, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.written == nil {
		m.written = map[types.NamespacedName]string{}
	}
	m.written[key] = version
}

// forget ends the memory of a cluster that is gone, or that the cache has caught up with.
func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.written, key)
}

// ahead says whether this process wrote the cluster after the version that the cache has.
func (m *memory) ahead(key types.NamespacedName, cached *hivev1.ClusterDeployment) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	version, ok := m.written[key]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, version)
	return err == nil && order < 0
}
