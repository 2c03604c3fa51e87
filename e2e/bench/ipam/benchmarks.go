// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipam holds the benchmarks of ipam-operator.
package ipam

import (
	"context"

	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/environment"
)

// Benchmarks returns all benchmarks of ipam-operator.
func Benchmarks() []bench.Benchmark {
	operator := environment.IPAMOperator()
	return []bench.Benchmark{
		{Name: "ipam.claims_10k", Operator: operator, Play: claims10k},
		{Name: "ipam.claim_idle", Operator: operator, Play: claimIdle},
		{Name: "ipam.exhausted", Operator: operator, Play: exhausted},
		{Name: "ipam.churn_60s", Operator: operator, Play: churn60s},
		{Name: "ipam.release_10k", Operator: operator, Play: release10k},
		{Name: "ipam.admission_10k", Operator: operator, Play: admission10k},
		{Name: "ipam.pick", Play: pick},
		{Name: "ipam.parse", Play: parse},
		{Name: "ipam.restart_50k", Operator: operator, Play: restart50k},
	}
}

// parse reads the spec of a pool with 1,000 ranges and 10,000 preallocations.
func parse(ctx context.Context, r *bench.Run) error {
	results, err := bench.GoBenchmark{Module: "ipam-operator", Package: "./internal/allocate", Pattern: "^BenchmarkParse$"}.Run(ctx)
	if err != nil {
		return err
	}
	for _, result := range results {
		r.Figure("ms", result.NanosecondsPerOp/1e6, "ms", 50)
	}
	return nil
}

// pick chooses an address when few or many are taken of a small or a large network.
func pick(ctx context.Context, r *bench.Run) error {
	results, err := bench.GoBenchmark{Module: "ipam-operator", Package: "./internal/ipset", Pattern: "^BenchmarkPick$"}.Run(ctx)
	if err != nil {
		return err
	}
	worst := bench.GoResult{}
	for _, result := range results {
		worst.NanosecondsPerOp = max(worst.NanosecondsPerOp, result.NanosecondsPerOp)
		worst.AllocsPerOp = max(worst.AllocsPerOp, result.AllocsPerOp)
		r.Note("%s: %.0f ns, %.0f allocations", result.Name, result.NanosecondsPerOp, result.AllocsPerOp)
	}
	r.Figure("ns_per_op", worst.NanosecondsPerOp, "ns", 1000)
	r.Figure("allocs_per_op", worst.AllocsPerOp, "allocations", 2)
	return nil
}
