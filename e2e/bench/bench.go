// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures operators on a control plane of their own: what they write, how long it takes beside the same writes issued bare, and what they use.
// The workloads of each operator are in a package of their own.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/e2e/environment"
)

// Benchmark is one workload.
type Benchmark struct {
	// Name is <operator>.<workload>, as in pool.fill_100.
	Name string
	// Operator is what is measured; without a name there is none, and no control plane either.
	Operator environment.Operator
	// Play runs the workload. The error says that it came out wrong, or not at all; being slow is no error.
	Play func(ctx context.Context, r *Run) error
	// ByName says that it runs only when it is named, because it takes most of an hour.
	ByName bool
}

// Select returns the benchmarks of the names given, and without names all that need not be named.
func Select(all []Benchmark, names []string) ([]Benchmark, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(all), func(b Benchmark) bool { return b.ByName }), nil
	}
	wanted := slices.DeleteFunc(slices.Clone(all), func(b Benchmark) bool { return !slices.Contains(names, b.Name) })
	if len(wanted) != len(names) {
		return nil, fmt.Errorf("there are no such benchmarks, not all of %s", strings.Join(names, ", "))
	}
	return wanted, nil
}

// Options say what is run and where figures go.
type Options struct {
	// Out gets the tables.
	Out io.Writer
	// Figures is a file to which each figure is appended as a line of JSON.
	Figures string
	// Scale multiplies sizes; figures are quoted at 1 only.
	Scale float64
}

// Run runs benchmarks one after the other, each on a control plane of its own. A failure of one does not stop the others.
func (o Options) Run(ctx context.Context, benchmarks []Benchmark) error {
	o.say("%d processors, %s, load %s; etcd with --unsafe-no-fsync: it does not wait for the disk\n", runtime.NumCPU(), runtime.Version(), load())
	if o.Scale != 1 {
		o.say("sizes are multiplied by %g: these are no figures to quote\n", o.Scale)
	}
	var errs []error
	for _, b := range benchmarks {
		if err := o.one(ctx, b); err != nil {
			o.say("  FAILED: %v\n", err)
			errs = append(errs, fmt.Errorf("%s: %w", b.Name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// say prints to the tables. It ignores errors of the output.
func (o Options) say(format string, args ...any) { _, _ = fmt.Fprintf(o.Out, format, args...) }

func (o Options) one(ctx context.Context, b Benchmark) (err error) {
	o.say("\n%s\n", b.Name)
	r := &Run{options: o, benchmark: b}
	if b.Operator.Name == "" {
		if err := b.Play(ctx, r); err != nil {
			return err
		}
		return r.print()
	}
	local, err := environment.NewLocal(ctx, environment.LocalOptions{UnsafeNoFsync: true, Prefix: "muster-bench-"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close(context.WithoutCancel(ctx))) }()
	r.Local = local
	if r.Admin, err = environment.Config(local); err != nil {
		return err
	}
	if r.token, err = metricsToken(ctx, r.Admin, b.Operator.Name); err != nil {
		return err
	}
	if err := r.startOperator(ctx); err != nil {
		return err
	}
	if err := b.Play(ctx, r); err != nil {
		if !r.stopped {
			err = errors.Join(err, local.Failed())
		}
		return err
	}
	return r.print()
}

// Run is a benchmark that is being run.
type Run struct {
	// Local is its control plane with the operator.
	Local *environment.Local
	// Admin is the configuration of an administrator, without a limit on the client's side.
	Admin *rest.Config

	options   Options
	benchmark Benchmark
	token     string
	stopped   bool
	figures   []figure
	notes     []string
}

// startOperator starts the operator and waits until its metrics are served, too.
func (r *Run) startOperator(ctx context.Context) error {
	if err := r.Local.StartOperator(ctx, r.benchmark.Operator); err != nil {
		return err
	}
	return r.Await(ctx, time.Minute, func() string {
		if _, err := r.scrape(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
}

// Scaled multiplies a size by BENCH_SCALE. The result is at least 1.
func (r *Run) Scaled(n int) int { return max(1, int(math.Round(float64(n)*r.options.Scale))) }

// StopOperator ends the operator, so that what follows is measured without any.
func (r *Run) StopOperator() {
	r.stopped = true
	r.Local.KillOperator(r.benchmark.Operator.Name)
}

// Note adds a sentence below the table.
func (r *Run) Note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// Asserted adds what was found to be right.
func (r *Run) Asserted(format string, args ...any) {
	r.Note("asserted: "+format, args...)
}

// Await waits until a condition holds, and fails with what it says is missing when that takes longer than limit.
func (r *Run) Await(ctx context.Context, limit time.Duration, missing func() string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		what := missing()
		if what == "" {
			return nil
		}
		if !r.stopped {
			if err := r.Local.Failed(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s still: %s", limit, what)
		case <-tick.C:
		}
	}
}

// Percentile returns the smallest duration that a share p of all do not exceed.
func Percentile(durations []time.Duration, p float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(p*float64(len(sorted))))-1))]
}

// load is the machine's load of the last minute, where the system tells it.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}
