// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/faultinject"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// ledger gives the addresses of an IPPool to claims as ipam-operator does: each to one claim until that is gone. At every gift it looks whether the system of another
// machine is on its disk, with the address.
type ledger struct {
	*crashEnv
	// installed are the disks of machines by the names of their Agents.
	installed map[string]*installed
	pool      string
	free      []string
	// given is by the UID of the claim.
	given map[types.UID]string
	// gifts are all that were given, in order.
	gifts []string
}

// serve gives addresses to machines until the test ends.
func (w *crashEnv) serve(tenants []*tenant, pool string, addresses ...string) *ledger {
	l := &ledger{crashEnv: w, installed: map[string]*installed{}, pool: pool, free: addresses, given: map[types.UID]string{}}
	for _, one := range tenants {
		l.installed[one.agent.Name] = &one.installed
	}
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			l.pass(ctx)
			return false, nil
		})
	})
	w.Cleanup(func() {
		cancel()
		over.Wait()
	})
	return l
}

// pass looks at all claims once.
func (l *ledger) pass(ctx context.Context) {
	var claims ipamv1.IPClaimList
	if l.user.List(ctx, &claims, client.InNamespace(l.namespace)) != nil {
		return
	}
	there := map[types.UID]bool{}
	for i := range claims.Items {
		there[claims.Items[i].UID] = true
	}
	for uid, address := range l.given {
		if !there[uid] {
			delete(l.given, uid)
			l.free = append(l.free, address)
		}
	}
	for i := range claims.Items {
		if claim := &claims.Items[i]; claim.Spec.Pool.Name == l.pool && claim.DeletionTimestamp == nil && l.given[claim.UID] == "" {
			l.answer(ctx, claim)
		}
	}
}

func (l *ledger) answer(ctx context.Context, claim *ipamv1.IPClaim) {
	before := claim.DeepCopy()
	if len(l.free) == 0 {
		claim.Status.ErrorMessage = new("Exhausted IP Pools")
		_ = l.user.Status().Patch(ctx, claim, client.MergeFrom(before))
		return
	}
	address := l.free[0]
	l.unused(claim, address)
	made := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: "p-" + string(claim.UID)},
		Spec: ipamv1.IPAddressSpec{
			Claim: ipamv1.ObjectReference{Name: claim.Name, Namespace: claim.Namespace}, Pool: ipamv1.ObjectReference{Name: l.pool, Namespace: claim.Namespace},
			Address: ipamv1.IPAddressStr(address), Prefix: 8,
		},
	}
	if client.IgnoreAlreadyExists(l.user.Create(ctx, made)) != nil {
		return
	}
	l.free, l.given[claim.UID] = l.free[1:], address
	l.gifts = append(l.gifts, address)
	claim.Status.Address, claim.Status.ErrorMessage = &ipamv1.ObjectReference{Name: made.Name, Namespace: made.Namespace}, nil
	assert.NoError(l, client.IgnoreNotFound(l.user.Status().Patch(ctx, claim, client.MergeFrom(before))))
}

// unused says that no disk of another machine has a system with an address. It asks the machines: the service may have forgotten.
func (l *ledger) unused(claim *ipamv1.IPClaim, address string) {
	for agent, installed := range l.installed {
		if values := installed.join(l.T); values != nil && claim.Labels[agentv1.ClaimOwnerLabel] != agent {
			assert.NotContains(l, values.NodeIPs, netip.MustParseAddr(address), agent)
		}
	}
}

// claims are those of an Agent, or of all where it is nil.
func (w *crashEnv) claims(agent *agentv1.Agent) []ipamv1.IPClaim {
	w.Helper()
	var claims ipamv1.IPClaimList
	require.NoError(w, w.user.List(w.Context(), &claims, client.InNamespace(w.namespace)))
	return slices.DeleteFunc(claims.Items, func(c ipamv1.IPClaim) bool { return agent != nil && c.Labels[agentv1.ClaimOwnerLabel] != agent.Name })
}

// tenant is a machine that is installed with an address.
type tenant struct {
	*machine
	agent *agentv1.Agent
	name  string
}

// rackWithAddresses boots machines whose InfraEnv gives them addresses of a pool, and makes a cluster that takes them.
func (w *crashEnv) rackWithAddresses(pool string, count int) ([]*tenant, *hivev1.ClusterDeployment) {
	w.Helper()
	w.reside, w.bootTime = true, 2*time.Second // an address that is given too early is given meanwhile
	infraEnv, image := w.rack()
	change(w.cluster, infraEnv, func(e *agentv1.InfraEnv) {
		fromPool(pool)(&e.Spec)
		e.Spec.OnRelease = &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk}
	})
	w.until(infraEnv, "the policy is known", func() bool { return w.policy(infraEnv) == domain.WipeInstalledDisk })
	deployment, _ := w.takesNodesIn(w.namespace)
	var tenants []*tenant
	for number := range count {
		m := w.bootWith(string(infraEnv.UID), image, number, 0)
		tenants = append(tenants, &tenant{m, w.agent(m), fmt.Sprintf("worker-%d-%s", number, w.namespace)})
	}
	return tenants, deployment
}

func (w *crashEnv) join(one *tenant, deployment *hivev1.ClusterDeployment) {
	w.Helper()
	change(w.cluster, one.agent, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, one.name, "worker"
	})
}

// hasJoined waits until a machine is installed, and compares its first-boot data with its claim.
func (w *crashEnv) hasJoined(one *tenant) netip.Addr {
	w.Helper()
	w.until(one.agent, "the machine is installed", func() bool { return one.agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	values := one.installed.join(w.T)
	require.NotNil(w, values)
	require.Len(w, values.NodeIPs, 1, "it is not installed without an address")
	claims := w.claims(one.agent)
	require.Len(w, claims, 1)
	require.NotNil(w, claims[0].Status.Address)
	var address ipamv1.IPAddress
	require.NoError(w, w.user.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: claims[0].Status.Address.Name}, &address))
	assert.Equal(w, string(address.Spec.Address), values.NodeIPs[0].String())
	return values.NodeIPs[0]
}

// leave frees a machine, and waits until it is.
func (w *crashEnv) leave(one *tenant) {
	w.Helper()
	w.asksForInstructions(one.agent)
	change(w.cluster, one.agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	w.until(one.agent, "the machine is free", func() bool {
		return agentv1.IsConditionTrue(one.agent.Status.Conditions, agentv1.ConditionReleased) && one.agent.Status.DebugInfo.State == "known-unbound"
	})
}

// noClaims waits until there are no claims.
func (w *crashEnv) noClaims() {
	w.Helper()
	require.Eventually(w, func() bool { return len(w.claims(nil)) == 0 }, kubePatience, 50*time.Millisecond, "claims are left")
}

// TestADeathAtEveryWriteWithAddresses kills the service before and after every write to the Kubernetes API and every commit while two machines have the only address of a pool one
// after the other. Each time another process goes on. No machine is installed without an address, or with one that the system of the other may use, and no claim is left.
func TestADeathAtEveryWriteWithAddresses(t *testing.T) {
	if testing.Short() {
		t.Skip("many installations are not made in a short run")
	}
	t.Parallel()
	const period = 6
	for first := 1; first <= period; first++ {
		t.Run(fmt.Sprintf("from write %d", first), func(t *testing.T) {
			t.Parallel()
			w := newCrashEnv(t)
			processes := &faultinject.Sequence{First: first, Period: period}
			w.run(func() (*faultinject.Injector, bool) { return processes.Next(), true })
			tenants, deployment := w.rackWithAddresses("rack-a", 2)
			w.serve(tenants, "rack-a", "10.99.0.7")
			one, two := tenants[0], tenants[1]
			w.join(one, deployment)
			w.hasJoined(one)
			w.join(two, deployment)
			w.missing(two.agent, "IPPool rack-a: Exhausted IP Pools")
			w.leave(one)
			w.hasJoined(two)
			w.leave(two)
			w.noClaims()
			assert.Positive(t, processes.Crashes())
		})
	}
}

// Two replicas that both serve all custom resources, and lose the answer of every second write, give each address to one machine, and each machine one address.
func TestTwoReplicasGiveAnAddressOnce(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	w := newCrashEnv(t, func(o *Options) { o.Database = server.URL })
	for range 2 {
		w.replica(faultinject.Never())
	}
	const machines, addresses = 6, 3
	tenants, deployment := w.rackWithAddresses("rack-a", machines)
	l := w.serve(tenants, "rack-a", "10.99.0.1", "10.99.0.2", "10.99.0.3")
	w.lossy.Store(true)
	for _, one := range tenants {
		w.join(one, deployment)
	}
	var left []*tenant
	for range machines / addresses {
		var at []netip.Addr
		var joined []*tenant
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, kubePatience, true, func(ctx context.Context) (bool, error) {
			joined = nil
			for _, one := range tenants {
				if err := w.user.Get(ctx, client.ObjectKeyFromObject(one.agent), one.agent); err != nil {
					return false, err
				}
				if !slices.Contains(left, one) && one.agent.Status.DebugInfo.State == "added-to-existing-cluster" {
					joined = append(joined, one)
				}
			}
			return len(joined) == addresses, nil
		})
		require.NoError(t, err, "machines do not get addresses")
		for _, one := range joined {
			at = append(at, w.hasJoined(one))
		}
		slices.SortFunc(at, netip.Addr.Compare)
		assert.Len(t, slices.Compact(at), addresses, "each has its own")
		for _, one := range joined {
			w.leave(one)
		}
		left = append(left, joined...)
	}
	w.noClaims()
	w.lossy.Store(false)
	assert.Len(t, l.gifts, machines, "an address is asked for once for each installation")
}
