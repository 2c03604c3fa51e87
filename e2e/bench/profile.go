// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Profile samples where a process spends its time on processors until done is called, where the environment names a directory for that (BENCH_PROFILE).
// It needs perf of Linux, which also reads what it wrote: perf report -i <directory>/<benchmark>.perf.
func (r *Run) Profile(ctx context.Context, pid int) (done func(), err error) {
	dir := os.Getenv("BENCH_PROFILE")
	if dir == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil { //nolint:gosec // of the one who measures
		return nil, fmt.Errorf("making the directory of profiles: %w", err)
	}
	file := filepath.Join(dir, r.benchmark.Name+".perf")
	perf := exec.CommandContext(ctx, "perf", "record", "--quiet", "--call-graph=fp", "--freq=499", "--pid="+strconv.Itoa(pid), "--output="+file) //nolint:gosec // of the one who measures
	if err := perf.Start(); err != nil {
		return nil, fmt.Errorf("taking a profile: %w", err)
	}
	return func() {
		_ = perf.Process.Signal(os.Interrupt)
		_ = perf.Wait()
		if _, err := os.Stat(file); err != nil { //nolint:gosec // of the one who measures
			r.Note("no profile: perf has written none")
			return
		}
		r.Note("profile: %s", file)
	}, nil
}
