// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

// running0to50to0 lets half of a pool's clusters run, and none again.
func running0to50to0(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r, standInInstalls)
	if err != nil {
		return err
	}
	defer w.close()
	half := w.Scaled(50)
	pool := newPool("power", 2*half, 0)
	before, err := w.fill(ctx, pool)
	if err != nil {
		return err
	}
	for _, running := range []int{half, 0} {
		started := time.Now()
		patch := map[string]any{"spec": map[string]any{"runningCount": running}}
		if err := mergePatch(ctx, w.user, pool, patch); err != nil {
			return fmt.Errorf("changing runningCount: %w", err)
		}
		if err := w.Await(ctx, patience, func() string {
			if _, is := w.count(ctx, pool.Name); is != running {
				return fmt.Sprintf("%d clusters run, wanted %d", is, running)
			}
			return ""
		}); err != nil {
			return err
		}
		w.Note("runningCount %d: %d clusters were switched after %s", running, half, time.Since(started).Round(time.Millisecond))
		if err := w.verifyOldestRun(ctx, pool.Name, running); err != nil {
			return err
		}
		if _, err := w.Settled(ctx, quiet, patience); err != nil {
			return err
		}
	}
	after, err := w.Requests(ctx)
	if err != nil {
		return err
	}
	done := after.Since(before)
	onClusters := bench.Total(done.Writes(), func(kind bench.Kind) bool { return kind.Resource == "clusterdeployments" })
	w.Figure("writes_per_op", float64(onClusters)/float64(2*half), "writes", 1)
	w.Figure("pool_status_writes", float64(bench.Total(done.Writes(), nil)-onClusters), "writes", bench.NoTarget)
	w.NoteRequests(done)
	return w.FigureUsage()
}

// verifyOldestRun checks that the clusters that run are the oldest.
func (w *testEnv) verifyOldestRun(ctx context.Context, pool string, want int) error {
	var youngest, oldest time.Time // of those that run, and of those that sleep
	clusters := w.clusters(ctx, pool)
	running := 0
	for i := range clusters {
		created := clusters[i].CreationTimestamp.Time
		if clusters[i].Spec.PowerState == hivev1.PowerStateRunning {
			running++
			if created.After(youngest) {
				youngest = created
			}
		} else if oldest.IsZero() || created.Before(oldest) {
			oldest = created
		}
	}
	if running != want || (running > 0 && youngest.After(oldest)) {
		return fmt.Errorf("%d clusters should run, wanted the %d oldest", running, want)
	}
	w.Asserted("the %d oldest of %d clusters run, the others sleep", want, len(clusters))
	return nil
}

// steady20x50 leaves full pools alone for a minute, except that every cluster's installer writes to it once.
func steady20x50(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r, standInInstalls)
	if err != nil {
		return err
	}
	defer w.close()
	var pools []*hivev1.ClusterPool
	for i := range w.Scaled(20) {
		pools = append(pools, newPool(fmt.Sprintf("steady-%02d", i), 50, 2))
	}
	before, err := w.fill(ctx, pools...)
	if err != nil {
		return err
	}
	used, err := w.Usage()
	if err != nil {
		return err
	}
	over := time.After(time.Minute)
	if err := w.touchAll(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-over:
	}
	after, err := w.Requests(ctx)
	if err != nil {
		return err
	}
	usedThen, err := w.Usage()
	if err != nil {
		return err
	}
	for _, pool := range pools {
		if installed, running := w.count(ctx, pool.Name); installed != 50 || running != 2 {
			return fmt.Errorf("pool %s has %d clusters, of which %d run", pool.Name, installed, running)
		}
	}
	w.Asserted("%d pools kept their 50 clusters, 2 of them running", len(pools))
	done := after.Since(before)
	w.Figure("writes_total", float64(bench.Total(done.Writes(), nil)), "writes", 0)
	w.Figure("cpu_s", (usedThen.CPU - used.CPU).Seconds(), "s", bench.NoTarget)
	w.Figure("rss_mb", usedThen.PeakRSS, "MiB", bench.NoTarget)
	w.NoteRequests(done)
	return nil
}

// touchAll lets the installer write to every cluster once.
func (w *testEnv) touchAll(ctx context.Context) error {
	clusters := w.clusters(ctx, "")
	var (
		next atomic.Int64
		mu   sync.Mutex
		errs []error
		wait sync.WaitGroup
	)
	before := w.counter.Requests()
	for range installers {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(clusters); i = int(next.Add(1)) - 1 {
				if err := w.touch(ctx, &clusters[i]); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wait.Wait()
	written := w.counter.Requests().Since(before).Writes()
	if want := map[bench.Kind]int{{Verb: "patch", Resource: "clusterdeployments/status"}: len(clusters)}; !maps.Equal(written, want) {
		return errors.Join(append(errs, fmt.Errorf("the stand-in installer wrote %s", bench.Describe(written)))...)
	}
	w.Note("the stand-in installer wrote to each of %d clusters once", len(clusters))
	return client.IgnoreNotFound(errors.Join(errs...))
}
