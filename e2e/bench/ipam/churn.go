// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
)

// Figures of churn60s.
const (
	perSecond = 40
	// alive is how many claims there are at a time: each is deleted when so many younger ones were created.
	alive = 200
)

// churn60s creates and deletes claims at a steady pace while three replicas serve them, none of which leads.
func churn60s(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r)
	if err != nil {
		return err
	}
	for _, replica := range []string{"second", "third"} {
		operator := environment.IPAMOperator()
		operator.Replica = replica
		if err := w.Local.StartOperator(ctx, operator); err != nil {
			return err
		}
	}
	pool, err := w.pool(ctx, "p", span("10.0.0.1", "10.0.0.250"))
	if err != nil {
		return err
	}
	claims, err := w.churn(ctx, pool.Name, w.Scaled(60*perSecond))
	if err != nil {
		return err
	}
	if err := w.untilServed(ctx, claims); err != nil {
		return err
	}
	if _, err := w.Settled(ctx, quiet, patience); err != nil {
		return err
	}
	var f faults
	err = w.Await(ctx, patience, func() string {
		if f, err = w.look(ctx); err != nil {
			return err.Error()
		}
		if f != (faults{served: len(claims)}) {
			return fmt.Sprintf("%+v, wanted %d served", f, len(claims))
		}
		return ""
	})
	w.Figure("duplicates", float64(f.duplicates), "addresses", 0)
	w.Figure("leaked", float64(f.leaked), "addresses", 0)
	w.Figure("dangling", float64(f.dangling), "claims", 0)
	if err != nil {
		return err
	}
	w.Latencies(w.everServed(), bench.NoTarget)
	if err := w.check(ctx); err != nil {
		return err
	}
	w.Asserted("%d claims are left and served; 'ipam-operator check' finds no contradiction", len(claims))
	return nil
}

// churn creates n claims and deletes all but the youngest, which it returns.
func (w *testEnv) churn(ctx context.Context, pool string, n int) (map[string]time.Time, error) {
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	var (
		mu   sync.Mutex
		errs []error
		wait sync.WaitGroup
	)
	name := func(i int) string { return fmt.Sprintf("claim-%d", i) }
	w.sent = make([]time.Time, n)
	for i := range n {
		wait.Go(func() {
			w.sent[i] = time.Now()
			err := w.user.Create(ctx, newClaim(name(i), pool))
			if err == nil && i >= alive {
				err = client.IgnoreNotFound(w.user.Delete(ctx, newClaim(name(i-alive), pool)))
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	wait.Wait()
	left := map[string]time.Time{}
	for i := max(0, n-alive); i < n; i++ {
		left[name(i)] = w.sent[i]
	}
	return left, errors.Join(errs...)
}

// everServed tells how long each claim of the churn waited that was seen to have an address.
func (w *testEnv) everServed() (out []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, sent := range w.sent {
		if at, ok := w.served[fmt.Sprintf("claim-%d", i)]; ok {
			out = append(out, at.Sub(sent))
		}
	}
	w.Note("%d of %d claims were seen to be served before they were deleted", len(out), len(w.sent))
	return out
}

// check runs the operator's own checker.
func (w *testEnv) check(ctx context.Context) error {
	program, err := checkout.Binary("ipam-operator")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "check", "--kubeconfig="+w.Local.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ipam-operator check: %w\n%s", err, out)
	}
	return nil
}
