// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/machineplan"
)

// refusalAge is for how long an Agent that the API server refused is tried after all others. A user may have mended it by then.
const refusalAge = 10 * time.Minute

// refusals remembers when the API server refused which Agents to each pool that lacks machines. A pass tries maxRefused of them only: without this, each would try the same ones, and never the
// Agents behind them. The zero value is empty and ready for use by several goroutines.
type refusals struct {
	mu sync.Mutex
	at map[client.ObjectKey]map[string]time.Time
}

// add remembers that an Agent was refused to a pool.
func (r *refusals) add(pool client.ObjectKey, agent string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[client.ObjectKey]map[string]time.Time{}
	}
	if r.at[pool] == nil {
		r.at[pool] = map[string]time.Time{}
	}
	r.at[pool][agent] = now
}

// forget ends the memory of a pool that is gone, or lacks no machines.
func (r *refusals) forget(pool client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, pool)
}

// last returns the candidates of a pool with those at the end that were refused not long ago, the oldest refusal first.
func (r *refusals) last(pool client.ObjectKey, candidates []machineplan.Machine, now time.Time) []machineplan.Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.at[pool]
	maps.DeleteFunc(at, func(_ string, then time.Time) bool { return now.Sub(then) >= refusalAge })
	if len(at) == 0 {
		delete(r.at, pool)
		return candidates
	}
	candidates = slices.Clone(candidates)
	slices.SortStableFunc(candidates, func(a, b machineplan.Machine) int { return at[a.Name].Compare(at[b.Name]) })
	return candidates
}
