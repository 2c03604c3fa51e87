// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/ownwrites"
)

// memory knows what this process wrote last and has not seen in a cache yet. Correctness does not depend on it; it spares the passes that would start from a view
// older than their own writes, and the conflicts that these would end with.
type memory struct {
	written ownwrites.Memory[types.UID]

	mu sync.Mutex
	// deleted are clusters that this process deleted, and claims whose finalizer it removed, until their end is seen.
	deleted map[types.UID]bool
	// late are clusters in which this process recorded a claim that was gone by then.
	late map[types.UID]bool
	// granted is when this process wrote the rights in a cluster.
	granted map[types.UID]time.Time
}

// unseenGrant is how long the absence of rights that this process wrote means that a cache is behind. After it they were deleted, or a cache is cut off: they are
// written again.
const unseenGrant = 5 * time.Second

func newMemory() *memory {
	return &memory{deleted: map[types.UID]bool{}, late: map[types.UID]bool{}, granted: map[types.UID]time.Time{}}
}

// deletes remembers that this process deletes a cluster, or removes the finalizer of a claim.
func (m *memory) deletes(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleted[uid] = true
}

// keeps takes deletes back after the write failed. All else that is remembered of the object stays.
func (m *memory) keeps(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.deleted, uid)
}

// dying says whether this process deleted the cluster, or removed the finalizer of the claim.
func (m *memory) dying(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deleted[uid]
}

// abandons remembers that the claim was gone when this process recorded it in the cluster.
func (m *memory) abandons(cluster types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late[cluster] = true
}

// abandoned says whether this process recorded a claim in the cluster that was gone by then.
func (m *memory) abandoned(cluster types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.late[cluster]
}

// grants remembers that this process wrote the rights in a cluster.
func (m *memory) grants(cluster types.UID, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.granted[cluster] = at
}

// grantedJustNow says whether this process wrote the rights in the cluster so lately that a cache may not have them.
func (m *memory) grantedJustNow(cluster types.UID, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.granted[cluster]
	if ok && now.Sub(at) >= unseenGrant {
		delete(m.granted, cluster)
		return false
	}
	return ok
}

// forget ends the memory of an object that is gone.
func (m *memory) forget(uid types.UID) {
	m.written.Forget(uid)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.deleted, uid)
	delete(m.late, uid)
	delete(m.granted, uid)
}

// ahead says whether the object was written by this process after the version that the cache has.
func (m *memory) ahead(cached client.Object) bool {
	return m.written.Ahead(cached.GetUID(), cached.GetResourceVersion())
}
