// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// reservations tell the workers of this process which cluster each of them is about to assign, until a cache shows it. Correctness does not depend on them: the API server
// arbitrates. They spare the races among neighbours, who all look at the same cache, when claims arrive in another order than they are served.
type reservations struct {
	mu       sync.Mutex
	claims   map[types.UID]reservation
	clusters map[string]types.UID
}

type reservation struct {
	cluster string
	// version is that of the claim after the assignment was written; empty while it is being written.
	version string
}

func newReservations() *reservations {
	return &reservations{claims: map[types.UID]reservation{}, clusters: map[string]types.UID{}}
}

// take reserves the cluster for the claim, in place of any other; false when another claim has it.
func (r *reservations) take(claim types.UID, cluster string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if owner, taken := r.clusters[cluster]; taken && owner != claim {
		return false
	}
	r.drop(claim)
	r.claims[claim], r.clusters[cluster] = reservation{cluster: cluster}, claim
	return true
}

// written says which version the claim has now that it names the cluster.
func (r *reservations) written(claim types.UID, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if held, ok := r.claims[claim]; ok {
		held.version = version
		r.claims[claim] = held
	}
}

// release ends the claim's reservation.
func (r *reservations) release(claim types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(claim)
}

func (r *reservations) drop(claim types.UID) {
	if held, ok := r.claims[claim]; ok {
		delete(r.clusters, held.cluster)
		delete(r.claims, claim)
	}
}

// apply shows a claim of the cache, which has the version, as it will be. A reservation that the cache shows is dropped.
func (r *reservations) apply(w *claimplan.Waiter, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, ok := r.claims[w.UID]
	if !ok {
		return
	}
	if held.version != "" {
		if order, err := resourceversion.CompareResourceVersion(version, held.version); err != nil || order >= 0 {
			r.drop(w.UID)
			return
		}
	}
	w.Namespace = held.cluster
}
