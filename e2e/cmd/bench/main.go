// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench runs the benchmarks of one operator: bench <pool|ipam|discovery|agent> [name…]. Figures are appended to bin/bench.jsonl.
// BENCH_SCALE in the environment multiplies sizes, for a quick look. BENCH_PROFILE names a directory for profiles of agent-service, which perf takes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/bench/agent"
	"github.com/muster-io/muster/e2e/bench/discovery"
	"github.com/muster-io/muster/e2e/bench/ipam"
	"github.com/muster-io/muster/e2e/bench/pool"
	"github.com/muster-io/muster/e2e/checkout"
)

// benchmarks returns those of each operator.
func benchmarks() map[string][]bench.Benchmark {
	return map[string][]bench.Benchmark{"pool": pool.Benchmarks(), "ipam": ipam.Benchmarks(), "discovery": discovery.Benchmarks(), "agent": agent.Benchmarks()}
}

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("name an operator: bench <pool|ipam|discovery|agent> [name…]")
	}
	all := benchmarks()[args[0]]
	if len(all) == 0 {
		fmt.Printf("bench: %s has no benchmarks yet.\n", args[0])
		return nil
	}
	wanted, err := bench.Select(all, args[1:])
	if err != nil {
		return err
	}
	scale := 1.0
	if text := os.Getenv("BENCH_SCALE"); text != "" {
		if scale, err = strconv.ParseFloat(text, 64); err != nil || scale <= 0 {
			return fmt.Errorf("BENCH_SCALE is %q: write a number above 0, such as 0.1", text)
		}
	}
	figures, err := checkout.Path("bin", "bench.jsonl")
	if err != nil {
		return err
	}
	return bench.Options{Out: os.Stdout, Figures: figures, Scale: scale}.Run(ctx, wanted)
}
