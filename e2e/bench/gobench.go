// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/muster-io/muster/e2e/checkout"
)

// GoBenchmark is a Go benchmark of a package: what it measures needs no operator that runs.
type GoBenchmark struct {
	// Module is the directory of the Go module, Package that of the package in it.
	Module, Package string
	// Pattern says which benchmarks run, as go test -bench takes it.
	Pattern string
}

// GoResult is a line of a Go benchmark.
type GoResult struct {
	// Name is what stands behind "Benchmark", without the number of processors.
	Name string
	// NanosecondsPerOp and AllocsPerOp are what one operation takes.
	NanosecondsPerOp, AllocsPerOp float64
}

var resultLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op.*?\s(\d+) allocs/op`)

// Run runs the benchmarks and returns their results, of which there is at least one.
func (b GoBenchmark) Run(ctx context.Context) ([]GoResult, error) {
	dir, err := checkout.Path(b.Module)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", b.Pattern, "-benchmem", "-count=1", b.Package)
	cmd.Dir, cmd.Env = dir, append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("running the Go benchmark %s of %s: %w\n%s", b.Pattern, b.Package, err, out)
	}
	results, err := parseGoBenchmark(out)
	if err != nil {
		return nil, fmt.Errorf("the Go benchmark %s of %s: %w\n%s", b.Pattern, b.Package, err, out)
	}
	return results, nil
}

func parseGoBenchmark(out []byte) ([]GoResult, error) {
	var results []GoResult
	for _, line := range resultLine.FindAllSubmatch(bytes.ReplaceAll(out, []byte("\r"), nil), -1) {
		r := GoResult{Name: string(line[1])}
		var err error
		if r.NanosecondsPerOp, err = strconv.ParseFloat(string(line[2]), 64); err != nil {
			return nil, fmt.Errorf("reading %q: %w", line[0], err)
		}
		if r.AllocsPerOp, err = strconv.ParseFloat(string(line[3]), 64); err != nil {
			return nil, fmt.Errorf("reading %q: %w", line[0], err)
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return nil, errors.New("it printed no result")
	}
	return results, nil
}
