// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/environment"
)

const (
	// namespace holds pools and claims.
	namespace = "bench"
	// patience is how long anything may take on a busy machine before it counts as stuck.
	patience = 10 * time.Minute
	// quiet is how long the operator must not have written to count as idle.
	quiet = 3 * time.Second
	// clients is how many write at a time where many claims are made.
	clients = 50
)

// testEnv is what a workload of claims happens in.
type testEnv struct {
	*bench.Run
	// user is a client of its own, for what users write.
	user client.Client
	// plainUser and plain do the bare writes of users and of the operator, which has its own identity: the API server authorizes an administrator without
	// looking at roles, and limits no administrator's requests.
	plainUser, plain client.Client
	plainCount       *bench.Counter

	mu        sync.Mutex
	served    map[string]time.Time     // by name of the claim: when a watch showed that it has its address
	explained map[string]bool          // claims whose condition says why they have none
	expect    map[string]chan struct{} // closed when the claim is seen to be served
	sent      []time.Time              // when each claim of a churn was created
}

// newTestEnv prepares the namespace and a watch of claims, which ends with the context.
func newTestEnv(ctx context.Context, r *bench.Run) (*testEnv, error) {
	w := &testEnv{Run: r, plainCount: bench.NewCounter(), served: map[string]time.Time{}, explained: map[string]bool{}, expect: map[string]chan struct{}{}}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), ipamv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("making a scheme: %w", err)
	}
	var err error
	if w.user, err = client.New(r.Admin, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if w.plainUser, err = w.counted(rest.CopyConfig(r.Admin), scheme); err != nil {
		return nil, err
	}
	operator := environment.IPAMOperator()
	token, err := environment.Token(ctx, r.Admin, operator.Namespace, operator.ServiceAccount)
	if err != nil {
		return nil, err
	}
	own := rest.AnonymousClientConfig(r.Admin)
	own.BearerToken = token
	if w.plain, err = w.counted(own, scheme); err != nil {
		return nil, err
	}
	if err := w.user.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, fmt.Errorf("creating the namespace: %w", err)
	}
	if err := w.untilAdmitted(ctx); err != nil {
		return nil, err
	}
	return w, w.watchClaims(ctx, scheme)
}

// counted returns a client whose requests are counted.
func (w *testEnv) counted(config *rest.Config, scheme *runtime.Scheme) (client.Client, error) {
	config.Wrap(w.plainCount.Wrap)
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// untilAdmitted waits until the API server takes claims: for a few seconds after a kind was defined, its admission policies do not know it.
func (w *testEnv) untilAdmitted(ctx context.Context) error {
	return w.Await(ctx, patience, func() string {
		if err := w.user.Create(ctx, newClaim("probe", "none"), client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	})
}

// watchClaims notes when a claim is seen to have its address, and when its condition says that it has none.
func (w *testEnv) watchClaims(ctx context.Context, scheme *runtime.Scheme) error {
	note := func(object any) {
		claim, ok := object.(*ipamv1.IPClaim)
		if !ok {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if claim.Status.Address != nil {
			if _, known := w.served[claim.Name]; !known {
				w.served[claim.Name] = time.Now()
				if waiting, ok := w.expect[claim.Name]; ok {
					close(waiting)
				}
			}
		}
		w.explained[claim.Name] = claim.Status.ErrorMessage != nil
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, object any) { note(object) }}
	return bench.Watch(ctx, w.Admin, scheme, namespace, &ipamv1.IPClaim{}, handler)
}

// pool creates a pool and waits until the operator has taken it over.
func (w *testEnv) pool(ctx context.Context, name string, ranges ...ipamv1.Pool) (*ipamv1.IPPool, error) {
	pool := &ipamv1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: ipamv1.IPPoolSpec{
			NamePrefix: name, Pools: ranges, Prefix: 16, Gateway: new(ipamv1.IPAddressStr("10.255.255.254")),
			DNSServers: []ipamv1.IPAddressStr{"10.0.0.2"}, AllocationStrategy: ipamv1.RandomAllocation,
		},
	}
	if err := w.user.Create(ctx, pool); err != nil {
		return nil, fmt.Errorf("creating a pool: %w", err)
	}
	err := w.Await(ctx, patience, func() string {
		if err := w.user.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return err.Error()
		}
		if len(pool.Finalizers) == 0 || pool.Status.Total == nil {
			return "no operator reconciles pool " + name
		}
		return ""
	})
	return pool, err
}

func network(cidr string) ipamv1.Pool {
	return ipamv1.Pool{Subnet: new(ipamv1.IPSubnetStr(cidr))}
}

func span(first, last string) ipamv1.Pool {
	return ipamv1.Pool{Start: new(ipamv1.IPAddressStr(first)), End: new(ipamv1.IPAddressStr(last))}
}

func newClaim(name, pool string) *ipamv1.IPClaim {
	return &ipamv1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: pool, Namespace: namespace}},
	}
}

// claim creates claims by many clients and returns when each creation was sent. Names are prefix-0, prefix-1 and so on.
func (w *testEnv) claim(ctx context.Context, prefix, pool string, n int) (map[string]time.Time, error) {
	var mu sync.Mutex
	sent := make(map[string]time.Time, n)
	err := inParallel(n, clients, func(i int) error {
		claim := newClaim(fmt.Sprintf("%s-%d", prefix, i), pool)
		at := time.Now()
		if err := w.user.Create(ctx, claim); err != nil {
			return fmt.Errorf("creating a claim: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent[claim.Name] = at
		return nil
	})
	return sent, err
}

// untilServed waits until a watch has shown an address at each claim.
func (w *testEnv) untilServed(ctx context.Context, claims map[string]time.Time) error {
	return w.Await(ctx, patience, func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if waiting := w.unserved(claims); waiting > 0 {
			return fmt.Sprintf("%d of %d claims wait", waiting, len(claims))
		}
		return ""
	})
}

// unserved counts the claims that were not seen to be served. The caller has the lock.
func (w *testEnv) unserved(claims map[string]time.Time) (waiting int) {
	for name := range claims {
		if w.served[name].IsZero() {
			waiting++
		}
	}
	return waiting
}

// waited tells how long each claim waited since it was sent, or since a later time.
func (w *testEnv) waited(claims map[string]time.Time, since time.Time) (out []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, sent := range claims {
		if since.After(sent) {
			sent = since
		}
		out = append(out, w.served[name].Sub(sent))
	}
	return out
}

// inParallel calls do with 0 to n-1 from so many goroutines, and returns the first error, behind which nothing is begun.
func inParallel(n, workers int, do func(i int) error) error {
	var (
		next  atomic.Int64
		wait  sync.WaitGroup
		first atomic.Pointer[error]
	)
	for range workers {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && first.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wait.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}
