// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

// perPool is how many machines each MachinePool wants.
const perPool = 5

// rackBind is MachinePools that take all free machines, as many at a time as bare writes have writers: the times are from the creation of each until the API server has an Agent of it
// bound.
func rackBind(ctx context.Context, r *bench.Run) error { return bindRack(ctx, r, writers, 2000) }

// rackBindStorm is the same with all MachinePools at once.
func rackBindStorm(ctx context.Context, r *bench.Run) error {
	return bindRack(ctx, r, r.Scaled(100), bench.NoTarget)
}

// writers is how many plain clients write at the same time.
const writers = 10

func bindRack(ctx context.Context, r *bench.Run, atOnce int, target bench.Target) (err error) {
	dir, err := os.MkdirTemp("", "muster-bench-os-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// Without an image no machine could join, and none is bound. Nothing is there to be installed.
	list, err := listSystem(dir, "127.0.0.1:9", [sha256.Size]byte{})
	if err != nil {
		return err
	}
	s, err := startSite(ctx, siteConfig{kube: true, arguments: []string{"-os-images=" + list}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	pools := r.Scaled(100)
	if err := s.approved(ctx, pools*perPool); err != nil {
		return err
	}
	if err := s.hub.takers(ctx, pools); err != nil {
		return err
	}
	if err := s.hub.quiet(ctx, 3*time.Second, 5*time.Minute); err != nil {
		return err
	}
	return measure(ctx, r, s, pools, target, func(ctx context.Context, pools int) ([]time.Duration, error) {
		return s.hub.bindAll(ctx, pools, atOnce)
	}, "bound", "have")
}

// measure runs do, which changes the machines of so many MachinePools, and records its figures until nothing more is written, beside those of bare patches.
func measure(ctx context.Context, r *bench.Run, s *site, pools int, target bench.Target, do func(ctx context.Context, pools int) ([]time.Duration, error), state, verb string) error {
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	used, waited := s.effort()
	profiled, err := r.Profile(ctx, s.service.Process.Pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	took, err := do(ctx, pools)
	if err != nil {
		return err
	}
	all := time.Since(begin)
	if err := s.hub.quiet(ctx, 3*time.Second, 10*time.Minute); err != nil {
		return err
	}
	after, err := s.counts(ctx)
	profiled()
	if err != nil {
		return err
	}
	requests, n := after.requests.Since(before.requests), float64(pools*perPool)
	r.Figure("operations", n, "machines", bench.NoTarget)
	r.Latencies(took, target)
	r.Figure("seconds_all", all.Seconds(), "s until all are "+state, bench.NoTarget)
	r.Figure("writes_per_op", float64(bench.Total(requests.Writes(), nil))/n, "writes", bench.NoTarget)
	r.Figure("requests_per_op", float64(bench.Total(requests.All(), nil))/n, "requests", bench.NoTarget)
	s.effortOf(r, used, waited, n)
	r.Note("requests to the Kubernetes API, until nothing more was written: %s", bench.Describe(requests.All()))
	r.Asserted("%d MachinePools %s %d machines each", pools, verb, perPool)
	kill(s.service)
	return s.hub.barePatches(ctx, r, pools*perPool, all)
}

// approved starts n machines, and approves their Agents.
func (s *site) approved(ctx context.Context, n int, arguments ...string) error {
	if _, _, err := s.fleet(ctx, "a", n, append(arguments, "-ramp=5s")...); err != nil {
		return err
	}
	if err := s.settled(ctx, n, 5*time.Minute); err != nil {
		return err
	}
	if err := s.hub.quiet(ctx, 3*time.Second, 5*time.Minute); err != nil {
		return err
	}
	all := &agentv1.AgentList{}
	if err := s.hub.client.List(ctx, all, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	if len(all.Items) != n {
		return fmt.Errorf("%d machines have %d Agents", n, len(all.Items))
	}
	for i := range all.Items {
		if err := s.hub.client.Patch(ctx, &all.Items[i], client.RawPatch(types.MergePatchType, []byte(`{"spec":{"approved":true}}`))); err != nil {
			return fmt.Errorf("approving an Agent: %w", err)
		}
	}
	return nil
}

func poolName(i int) string { return fmt.Sprintf("c%03d", i) }

// takers makes installed clusters that take nodes.
func (h *hub) takers(ctx context.Context, n int) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}
	if err := h.client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"muster.io/hosted-clusters":"true"}}}`))); err != nil {
		return fmt.Errorf("allowing hosted clusters: %w", err)
	}
	for i := range n {
		cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: poolName(i)}}
		cluster.Spec = hivev1.ClusterDeploymentSpec{
			ClusterName: cluster.Name, BaseDomain: "example.org", Installed: true, Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{Nodes: &hivev1.HostedNodes{}}},
			ClusterMetadata: &hivev1.ClusterMetadata{
				ClusterID: cluster.Name, InfraID: cluster.Name, AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "admin"}, NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: "nodes"},
			},
		}
		err := await(ctx, time.Minute, func() (string, error) {
			err := h.client.Create(ctx, cluster)
			if apierrors.IsForbidden(err) { // admission does not know the label yet
				return err.Error(), nil
			}
			return "", err
		})
		if err != nil {
			return fmt.Errorf("making a cluster: %w", err)
		}
	}
	return nil
}

// bindAll makes MachinePools one after the other, while fewer than atOnce lack machines, and returns for each machine the time from the creation of its pool until it was seen bound.
func (h *hub) bindAll(ctx context.Context, pools, atOnce int) ([]time.Duration, error) {
	bound := func(_, is string) (cluster string, ends bool) { return is, is != "" }
	return h.follow(ctx, pools, atOnce, bound, func(ctx context.Context, name string) error {
		made := &hivev1.MachinePool{ObjectMeta: workers(name), Spec: hivev1.MachinePoolSpec{
			ClusterDeploymentRef: hivev1.LocalObjectReference{Name: name}, Name: "worker", Replicas: new(int64(perPool)),
			Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}},
		}}
		if err := h.client.Create(ctx, made); err != nil {
			return fmt.Errorf("making a MachinePool: %w", err)
		}
		return nil
	})
}

// workers names the MachinePool of a cluster.
func workers(cluster string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: cluster + "-worker"}
}

// transition says whether a machine that was seen in one cluster before and is in another one now has come to its end, and which cluster's MachinePool it is measured by. A machine
// without a cluster has an empty name.
type transition func(was, is string) (cluster string, ends bool)

// follow changes MachinePools one after the other, so many at once, and returns for each machine the time from the change of its pool until its transition was seen.
func (h *hub) follow(ctx context.Context, pools, atOnce int, ends transition, change func(ctx context.Context, cluster string) error) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	slots := make(chan struct{}, atOnce)
	seen, err := h.watchAgents(ctx, pools*perPool, ends, func() { <-slots })
	if err != nil {
		return nil, err
	}
	asked := map[string]time.Time{}
	for i := range pools {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d MachinePools were changed: %w", i, pools, ctx.Err())
		}
		asked[poolName(i)] = time.Now()
		if err := change(ctx, poolName(i)); err != nil {
			return nil, err
		}
	}
	return durations(seen(), asked, pools)
}

// ended is when the transition of a machine was seen, and the cluster of its MachinePool.
type ended struct {
	cluster string
	at      time.Time
}

// watchAgents returns what waits for the transitions of n machines, and no longer than ctx lives. It calls filled for each MachinePool of which all machines have come to their end.
func (h *hub) watchAgents(ctx context.Context, n int, ends transition, filled func()) (wait func() map[string]ended, err error) {
	var mu sync.Mutex
	seen, has, all := map[string]ended{}, map[string]int{}, make(chan struct{})
	handler := toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(was, is any) {
		name := is.(*agentv1.Agent).Name
		cluster, end := ends(clusterOf(was), clusterOf(is))
		mu.Lock()
		defer mu.Unlock()
		if !end || !seen[name].at.IsZero() {
			return
		}
		seen[name] = ended{cluster: cluster, at: time.Now()}
		if has[cluster]++; has[cluster] == perPool {
			filled()
		}
		if len(seen) == n {
			close(all)
		}
	}}
	wait = func() map[string]ended {
		select {
		case <-all:
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
	return wait, bench.Watch(ctx, h.admin, h.client.Scheme(), metav1.NamespaceDefault, &agentv1.Agent{}, handler)
}

// clusterOf is the name of the cluster that an Agent is bound to, "" where there is none.
func clusterOf(agent any) string {
	if name := agent.(*agentv1.Agent).Spec.ClusterDeploymentName; name != nil {
		return name.Name
	}
	return ""
}

// durations are the times of machines; each pool must have its number of them.
func durations(seen map[string]ended, asked map[string]time.Time, pools int) ([]time.Duration, error) {
	var took []time.Duration
	has := map[string]int{}
	for _, e := range seen {
		has[e.cluster]++
		took = append(took, e.at.Sub(asked[e.cluster]))
	}
	for i := range pools {
		if has[poolName(i)] != perPool {
			return nil, fmt.Errorf("MachinePool of %s has %d machines instead of %d; %d machines have changed", poolName(i), has[poolName(i)], perPool, len(seen))
		}
	}
	return took, nil
}

// barePatches binds as many Agents with a plain client: one patch each, which is what binding one takes at least.
func (h *hub) barePatches(ctx context.Context, r *bench.Run, n int, workload time.Duration) error {
	counter := bench.NewCounter()
	config := rest.CopyConfig(h.admin)
	config.Wrap(counter.Wrap)
	plain, err := clientOf(config)
	if err != nil {
		return err
	}
	all := &agentv1.AgentList{}
	if err := h.client.List(ctx, all, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	patch := bench.Kind{Verb: "patch", Resource: agents}
	bare := bench.Bare{Writers: writers, Items: n, Order: []bench.Kind{patch}, Writes: map[bench.Kind]int{patch: n}}
	bare.Write = func(ctx context.Context, _ bench.Kind, item, _ int) error {
		body := []byte(`{"metadata":{"labels":{"bench.muster.io/pool":"bare"}},"spec":{"hostname":"bare","clusterDeploymentName":{"namespace":"default","name":"bare"}}}`)
		return plain.Patch(ctx, &all.Items[item], client.RawPatch(types.MergePatchType, body))
	}
	return r.RatioToBare(ctx, workload, bare, counter, bench.NoTarget)
}
