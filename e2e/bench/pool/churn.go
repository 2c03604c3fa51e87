// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

// Figures of claimChurn.
const (
	churnPools = 5
	churnSize  = 10
	// churnEvery is how often there is a new claim, held how long each is kept once it is served.
	churnEvery = time.Second
	held       = 5 * time.Second
)

// claimChurn claims clusters at a steady pace, works with each for a while and gives it back.
func claimChurn(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r, standInInstalls)
	if err != nil {
		return err
	}
	defer w.close()
	var pools []*hivev1.ClusterPool
	for i := range churnPools {
		pools = append(pools, newPool(fmt.Sprintf("churn-%d", i), churnSize, churnSize))
	}
	before, err := w.fill(ctx, pools...)
	if err != nil {
		return err
	}
	waited, err := w.churn(ctx, pools, w.Scaled(60))
	if err != nil {
		return err
	}
	if err := w.untilReturned(ctx, pools); err != nil {
		return err
	}
	after, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	done := after.Since(before)
	writes := bench.Total(done.Writes(), nil)
	w.Latencies(waited, 300)
	w.Figure("failed_writes_share", float64(done.FailedWrites())/float64(writes), "share", 0.02)
	w.Figure("writes_per_claim_life", float64(writes)/float64(len(waited)), "writes", 14)
	w.Asserted("%d claims served and given back; no claim is left, the pools are full again with %d clusters each, no namespace is left over", len(waited), churnSize)
	w.NoteRequests(done)
	return w.FigureUsage()
}

// churn makes n claims at a steady pace, on one pool after the other.
func (w *testEnv) churn(ctx context.Context, pools []*hivev1.ClusterPool, n int) ([]time.Duration, error) {
	waited, errs := make([]time.Duration, n), make([]error, n)
	var wait sync.WaitGroup
	tick := time.NewTicker(churnEvery)
	defer tick.Stop()
	for i := range n {
		wait.Go(func() { waited[i], errs[i] = w.live(ctx, fmt.Sprintf("claim-%03d", i), pools[i%len(pools)].Name) })
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	wait.Wait()
	return waited, errors.Join(errs...)
}

// live is the life of a claim: it is created, served, held and deleted. It returns how long it waited.
func (w *testEnv) live(ctx context.Context, name, pool string) (time.Duration, error) {
	c := claimed{name: name, created: time.Now()}
	claim := newClaim(name, pool)
	if err := w.user.Create(ctx, claim); err != nil {
		return 0, fmt.Errorf("creating a claim: %w", err)
	}
	if err := w.untilServed(ctx, []claimed{c}); err != nil {
		return 0, err
	}
	waited := w.servedAt(name).Sub(c.created)
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(held):
	}
	if err := w.user.Delete(ctx, claim); err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("deleting a claim: %w", err)
	}
	return waited, nil
}

// untilReturned waits until no claim is left and the pools are as they were, namespaces included.
func (w *testEnv) untilReturned(ctx context.Context, pools []*hivev1.ClusterPool) error {
	return w.Await(ctx, patience, func() string {
		claims, namespaces := &hivev1.ClusterClaimList{}, &metav1.PartialObjectMetadataList{}
		namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
		err := errors.Join(w.List(ctx, claims), w.List(ctx, namespaces, client.HasLabels{hivev1.LabelNamespaceClusterPoolName}))
		switch {
		case err != nil:
			return err.Error()
		case len(claims.Items) > 0:
			return fmt.Sprintf("%d claims are left", len(claims.Items))
		case len(namespaces.Items) != len(pools)*churnSize:
			return fmt.Sprintf("there are %d namespaces of clusters, wanted %d", len(namespaces.Items), len(pools)*churnSize)
		}
		for _, pool := range pools {
			if installed, running := w.count(ctx, pool.Name); installed != churnSize || running != churnSize {
				return fmt.Sprintf("pool %s has %d clusters, of which %d run", pool.Name, installed, running)
			}
		}
		return ""
	})
}
