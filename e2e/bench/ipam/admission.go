// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/e2e/bench"
)

// admissions is how many pools are admitted for a figure: the processor time of one is little.
const admissions = 5

// admission10k measures the processor time of the API server for the admission of pools with many preallocations. They are dry runs.
func admission10k(ctx context.Context, r *bench.Run) error {
	w, err := newTestEnv(ctx, r)
	if err != nil {
		return err
	}
	server, err := kubernetes.NewForConfig(r.Admin)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, size := range []struct {
		name   string
		n      int
		target bench.Target
	}{{"none_cpu_s", 0, bench.NoTarget}, {"1k_cpu_s", 1000, 0.2}, {"10k_cpu_s", 10_000, 0.5}} {
		pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "admitted"}}
		pool.Spec = ipamv1.IPPoolSpec{NamePrefix: "admitted", Pools: []ipamv1.Pool{network("10.0.0.0/16")}, PreAllocations: map[string]ipamv1.IPAddressStr{}}
		for i := range size.n {
			pool.Spec.PreAllocations[fmt.Sprintf("claim-%d", i)] = ipamv1.IPAddressStr(fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250))
		}
		before, err := cpuOf(ctx, server)
		if err != nil {
			return err
		}
		for range admissions {
			if err := w.user.Create(ctx, pool.DeepCopy(), client.DryRunAll); err != nil {
				return fmt.Errorf("admitting a pool with %d preallocations: %w", size.n, err)
			}
		}
		after, err := cpuOf(ctx, server)
		if err != nil {
			return err
		}
		w.Figure(size.name, (after-before)/admissions, "s", size.target)
	}
	return nil
}

// cpuOf is the processor time that the API server has used, in seconds.
func cpuOf(ctx context.Context, server *kubernetes.Clientset) (float64, error) {
	metrics, err := server.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(metrics)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "process_cpu_seconds_total "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.New("the API server does not tell its processor time")
}
