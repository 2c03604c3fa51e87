// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"
)

// Target is the most that a figure should be; NoTarget if there is none.
type Target float64

// NoTarget says that a figure is for information.
const NoTarget Target = -1

type figure struct {
	metric string
	value  float64
	unit   string
	target Target
}

// Figure records one number.
func (r *Run) Figure(metric string, value float64, unit string, target Target) {
	r.figures = append(r.figures, figure{metric, value, unit, target})
}

// Latencies records p50_ms and p99_ms, the latter with a target.
func (r *Run) Latencies(durations []time.Duration, target Target) {
	r.Figure("p50_ms", milliseconds(Percentile(durations, 0.5)), "ms", NoTarget)
	r.Figure("p99_ms", milliseconds(Percentile(durations, 0.99)), "ms", target)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// print prints the table and appends the figures to the file.
func (r *Run) print() error {
	table := tabwriter.NewWriter(r.options.Out, 0, 8, 2, ' ', 0)
	for _, f := range r.figures {
		verdict := ""
		switch {
		case f.target == NoTarget:
		case f.value <= float64(f.target):
			verdict = fmt.Sprintf("target ≤ %g\tmet", f.target)
		default:
			verdict = fmt.Sprintf("target ≤ %g\tMISSED", f.target)
		}
		_, _ = fmt.Fprintf(table, "  %s\t%.4g %s\t%s\n", f.metric, f.value, f.unit, verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, note := range r.notes {
		r.options.say("  %s\n", note)
	}
	return r.appendFigures()
}

// line is a figure in the file.
type line struct {
	Bench  string  `json:"bench"`
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	// Scale is there only when sizes were not the full ones.
	Scale float64 `json:"scale,omitempty"`
}

func (r *Run) appendFigures() error {
	if err := os.MkdirAll(filepath.Dir(r.options.Figures), 0o755); err != nil { //nolint:gosec // figures are no secret
		return fmt.Errorf("making the directory of the figures: %w", err)
	}
	file, err := os.OpenFile(r.options.Figures, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // figures are no secret
	if err != nil {
		return fmt.Errorf("opening the file of the figures: %w", err)
	}
	encoder := json.NewEncoder(file)
	for _, f := range r.figures {
		l := line{Bench: r.benchmark.Name, Metric: f.metric, Value: f.value, Unit: f.unit}
		if r.options.Scale != 1 {
			l.Scale = r.options.Scale
		}
		if err := encoder.Encode(l); err != nil {
			return errors.Join(fmt.Errorf("writing figures: %w", err), file.Close())
		}
	}
	return file.Close()
}
