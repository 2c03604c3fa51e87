// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// countAge is for how long it is not read again how many addresses an IPPool has: it says so once a second at most, and many MachinePools may look.
const countAge = 2 * time.Second

// addressCounts remembers what IPPools say of their addresses. The zero value is empty and ready for use by several goroutines.
type addressCounts struct {
	// taking is held while machines are bound that get addresses: two MachinePools would each count the last address as theirs.
	taking sync.Mutex
	mu     sync.Mutex
	of     map[client.ObjectKey]addressCount
}

// addressCount is what an IPPool says of its addresses.
type addressCount struct {
	// free is how many claims can get, nil where that is not known: the pool was made by another system, no controller has looked at it, or it cannot be read.
	free *int64
	// given are those that claims have, nil where the pool does not name all of them. The map is not to be changed.
	given map[netip.Addr]bool
	at    time.Time
}

// known is what was read not long ago. All that is older is forgotten.
func (a *addressCounts) known(pool client.ObjectKey, now time.Time) (addressCount, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.of, func(_ client.ObjectKey, count addressCount) bool { return now.Sub(count.at).Abs() >= countAge })
	count, ok := a.of[pool]
	return count, ok
}

func (a *addressCounts) keep(pool client.ObjectKey, count addressCount) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[client.ObjectKey]addressCount{}
	}
	a.of[pool] = count
}

// countAddresses is what an IPPool says of its addresses.
func (r *Reconciler) countAddresses(ctx context.Context, pool client.ObjectKey) (addressCount, error) {
	now := r.Clock.Now()
	if count, ok := r.addresses.known(pool, now); ok {
		return count, nil
	}
	found := &ipamv1.IPPool{}
	err := r.Live.Get(ctx, pool, found)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && !meta.IsNoMatchError(err) {
		return addressCount{}, fmt.Errorf("reading IPPool %s: %w", pool, err)
	}
	count := addressCount{free: found.Status.Free, at: now}
	if !found.Status.IndexesTruncated {
		count.given = map[netip.Addr]bool{}
		for _, text := range found.Status.Allocations {
			if address, err := netip.ParseAddr(string(text)); err == nil {
				count.given[address] = true
			}
		}
	}
	r.addresses.keep(pool, count)
	return count, nil
}

// addressPools are the IPPools of which an installed machine of an InfraEnv has addresses. How many other pools have is not known.
func addressPools(infraEnv *agentv1.InfraEnv) []string {
	if infraEnv == nil {
		return nil
	}
	var names []string
	for _, pool := range infraEnv.Spec.NodeAddresses {
		if pool.APIGroup == ipamv1.GroupVersion.Group && pool.Kind == ipamv1.IPPoolKind {
			names = append(names, pool.Name)
		}
	}
	return names
}

// observeAddresses reads how many addresses there are for the machines that the pool may take. The status of an IPPool is of a moment ago: addresses that bound machines wait for, or have since,
// are not free. A free machine that this process changed since counts as bound: the cache may not show it yet.
func (r *Reconciler) observeAddresses(ctx context.Context, seen *snapshot) error {
	seen.addresses = nil
	for _, agent := range seen.agents {
		if agentctl.ClusterKey(agent).Name != "" {
			continue
		}
		for _, name := range addressPools(seen.infraEnvOf(agent)) {
			if _, read := seen.addresses[name]; read {
				continue
			}
			count, err := r.countAddresses(ctx, client.ObjectKey{Namespace: agent.Namespace, Name: name})
			if err != nil {
				return err
			}
			if count.free != nil {
				count.free = new(*count.free)
			}
			if seen.addresses == nil {
				seen.addresses = map[string]addressCount{}
			}
			seen.addresses[name] = count
		}
	}
	if len(seen.addresses) == 0 {
		return nil
	}
	all, err := r.listAgents(ctx, seen, client.MatchingLabels{})
	if err != nil {
		return err
	}
	for i := range all {
		agent := &all[i]
		changed := agentctl.ClusterKey(agent).Name == "" && r.written.Ahead(client.ObjectKeyFromObject(agent), agent.ResourceVersion)
		if changed || waitsForAddresses(agent) {
			seen.takeAddresses(agent)
		} else {
			seen.takeGiven(agent)
		}
	}
	return nil
}

// waitsForAddresses is true for an Agent whose machine is bound, and has not got its addresses yet.
func waitsForAddresses(agent *agentv1.Agent) bool {
	state := lifecycle.State(agent.Status.DebugInfo.State)
	if agentctl.ClusterKey(agent).Name == "" {
		return false
	}
	if said := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionAddressesAssigned); said != nil {
		return said.Status != corev1.ConditionTrue && lifecycle.Idle(state)
	}
	return lifecycle.Free(state) // it was bound a moment ago
}

// takeAddresses counts one address less of each pool of which the machine of an Agent gets one.
func (s *snapshot) takeAddresses(agent *agentv1.Agent) {
	for _, name := range addressPools(s.infraEnvOf(agent)) {
		if free := s.addresses[name].free; free != nil {
			*free--
		}
	}
}

// takeGiven counts the addresses that the machine of an Agent has got since its pools were read.
func (s *snapshot) takeGiven(agent *agentv1.Agent) {
	for i := range agent.Status.Addresses {
		has := &agent.Status.Addresses[i]
		name, _ := strings.CutPrefix(has.Pool, ipamv1.IPPoolKind+" ")
		address, err := netip.ParsePrefix(has.Address)
		if of := s.addresses[name]; err == nil && of.free != nil && of.given != nil && !of.given[address.Addr()] {
			*of.free--
		}
	}
}

// lacksAddress names the IPPool that has no address for the machine of an Agent; empty where each has one, as far as is known.
func (s *snapshot) lacksAddress(agent *agentv1.Agent) string {
	for _, name := range addressPools(s.infraEnvOf(agent)) {
		if free := s.addresses[name].free; free != nil && *free <= 0 {
			return ipamv1.IPPoolKind + " " + name
		}
	}
	return ""
}
