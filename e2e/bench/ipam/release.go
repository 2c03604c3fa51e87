// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/e2e/bench"
)

// Kinds of writes that the deletion of a claim comes to: the user's, and those that the finalizers force.
var (
	deleteClaim     = bench.Kind{Verb: "delete", Resource: "ipclaims"}
	deleteAddress   = bench.Kind{Verb: "delete", Resource: "ipaddresses"}
	finalizeAddress = bench.Kind{Verb: "patch", Resource: "ipaddresses"}
	finalizeClaim   = bench.Kind{Verb: "patch", Resource: "ipclaims"}
)

// freed is when a watch showed that the address of a claim was gone, by name of the claim.
type freed struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (w *testEnv) watchAddresses(ctx context.Context) (*freed, error) {
	f := &freed{at: map[string]time.Time{}}
	return f, bench.Watch(ctx, w.Admin, w.user.Scheme(), namespace, &ipamv1.IPAddress{}, toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.at[object.(*ipamv1.IPAddress).Spec.Claim.Name] = time.Now()
	}})
}

// fullPool is a pool with so many claims that have their addresses.
func (w *testEnv) fullPool(ctx context.Context, n int) (*ipamv1.IPPool, error) {
	pool, err := w.pool(ctx, "p", network("10.0.0.0/16"))
	if err != nil {
		return nil, err
	}
	claims, err := w.claim(ctx, "claim", pool.Name, n)
	if err != nil {
		return nil, err
	}
	return pool, w.untilServed(ctx, claims)
}

// release10k deletes 10,000 claims of one pool by 50 clients.
func release10k(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r)
	if err != nil {
		return err
	}
	n := w.Scaled(10_000)
	pool, err := w.fullPool(ctx, n)
	if err != nil {
		return err
	}
	free, err := w.watchAddresses(ctx)
	if err != nil {
		return err
	}
	served, err := w.servedPool(ctx, pool, n) // before its status is drained
	if err != nil {
		return err
	}
	before, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	patches, err := w.poolPatches(ctx)
	if err != nil {
		return err
	}
	started := time.Now()
	waited, err := w.release(ctx, pool, free, n)
	if err != nil {
		return err
	}
	took := time.Since(started)
	after, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	if err := w.verifyServed(ctx, 0); err != nil {
		return err
	}
	done := after.Since(before)
	w.Figure("writes_per_op", float64(bench.Total(done.Writes(), forClaims))/float64(n), "writes", 3)
	w.Latencies(waited, bench.NoTarget)
	w.NoteRequests(done)
	if err := w.FigureUsage(); err != nil {
		return err
	}
	w.StopOperator()
	bare, err := w.newBareReleases(ctx, served, n)
	if err != nil {
		return err
	}
	return w.ratioToBare(ctx, took, patches, bench.Bare{
		Writers: clients, Items: n,
		Writes: bench.Sum(done.Writes(), map[bench.Kind]int{deleteClaim: n}),
		Order:  []bench.Kind{deleteClaim, deleteAddress, finalizeAddress, finalizeClaim, patchPool},
		Write:  bare.write,
	}, 1.2)
}

// release deletes all n claims of a pool and returns how long each took until a watch showed that its address was gone.
func (w *testEnv) release(ctx context.Context, pool *ipamv1.IPPool, free *freed, n int) ([]time.Duration, error) {
	sent := make([]time.Time, n)
	err := inParallel(n, clients, func(i int) error {
		sent[i] = time.Now()
		return w.user.Delete(ctx, newClaim(fmt.Sprintf("claim-%d", i), pool.Name))
	})
	if err != nil {
		return nil, fmt.Errorf("deleting a claim: %w", err)
	}
	if err := w.untilFree(ctx, free, n); err != nil {
		return nil, err
	}
	waited := make([]time.Duration, n)
	for i := range waited {
		waited[i] = free.at[fmt.Sprintf("claim-%d", i)].Sub(sent[i])
	}
	return waited, nil
}

// untilFree waits until a watch has shown that no address is left, and no claim is there.
func (w *testEnv) untilFree(ctx context.Context, free *freed, n int) error {
	return w.Await(ctx, patience, func() string {
		free.mu.Lock()
		gone := len(free.at)
		free.mu.Unlock()
		if gone < n {
			return fmt.Sprintf("%d of %d addresses are free", gone, n)
		}
		list := &ipamv1.IPClaimList{}
		if err := w.user.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
			return err.Error()
		}
		if len(list.Items) > 0 {
			return "claims are left"
		}
		return ""
	})
}

// bareReleases deletes claims and addresses without an operator.
type bareReleases struct{ *barePool }

// newBareReleases creates n served claims with their addresses, statuses and finalizers, and the status of the pool. The operator does not run any more.
func (w *testEnv) newBareReleases(ctx context.Context, like *ipamv1.IPPool, n int) (*bareReleases, error) {
	pool, err := w.newBarePool(ctx, like, n)
	if err != nil {
		return nil, err
	}
	err = inParallel(n, clients, func(i int) error {
		claim := newClaim(bareName(i), pool.pool.Name)
		claim.Finalizers = []string{ipamv1.IPClaimFinalizer}
		if err := w.user.Create(ctx, claim); err != nil {
			return fmt.Errorf("creating a claim: %w", err)
		}
		pool.claims[i] = claim
		pool.addresses[i] = pool.address(i)
		if err := w.user.Create(ctx, pool.addresses[i]); err != nil {
			return fmt.Errorf("creating an address: %w", err)
		}
		pool.indexes.set(claim.Name, true)
		return pool.publish(ctx, w.user, i)
	})
	if err != nil {
		return nil, err
	}
	return &bareReleases{pool}, pool.report(ctx, w.user)
}

// write does the n-th write of a kind for the deletion of a claim. Those that the operator did twice find nothing the second time, as its own did.
func (b *bareReleases) write(ctx context.Context, kind bench.Kind, item, n int) error {
	err := b.writeOnce(ctx, kind, item)
	if n > 0 && kind != patchPool {
		return client.IgnoreNotFound(err)
	}
	return err
}

// writeOnce does a write with the preconditions that the operator's own has.
func (b *bareReleases) writeOnce(ctx context.Context, kind bench.Kind, item int) error {
	claim, address := b.claims[item].DeepCopy(), b.addresses[item].DeepCopy()
	switch kind {
	case deleteClaim:
		return b.w.plainUser.Delete(ctx, claim)
	case deleteAddress:
		return b.w.plain.Delete(ctx, address, client.Preconditions{UID: &address.UID})
	case finalizeAddress:
		b.indexes.set(claim.Name, false)
		return b.w.plain.Patch(ctx, address, client.RawPatch(types.JSONPatchType, fmt.Appendf(nil,
			`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/finalizers","value":[%q]},{"op":"replace","path":"/metadata/finalizers","value":[]}]`,
			address.UID, ipamv1.IPAddressFinalizer)))
	case finalizeClaim:
		return b.w.plain.Patch(ctx, claim, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":null,"uid":%q}}`, claim.UID)))
	default:
		return b.report(ctx, b.w.plain)
	}
}
