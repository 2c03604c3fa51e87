// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package buildinfo says which build of Muster a program is. All programs of a release have one version, which is stated in one place: the linker's
// "-X github.com/muster-io/muster/apis/buildinfo.version=v0.2.0".
package buildinfo

import (
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// version is set by the linker.
var version = "dev"

// Version is that of the release, or dev for a program that was built for trying.
func Version() string { return version }

// UserAgent is how a program names itself to servers, such as pool-operator/v0.2.0. The API server takes what is before the slash for the default field manager.
func UserAgent(program string) string { return program + "/" + version }

// Describe is what a program prints for --version, in one line.
func Describe(program string) string {
	return fmt.Sprintf("%s %s %s %s/%s", program, version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Flag defines --version, so that --help lists it. Programs answer it with Print before they read their flags.
func Flag(flags *flag.FlagSet) { flags.Bool("version", false, "print the version and exit") }

// Print prints what Describe says if that is what the first argument asks for, and says whether it was.
func Print(out io.Writer, program string, arguments []string) bool {
	if len(arguments) == 0 || !slices.Contains([]string{"--version", "-version", "version"}, arguments[0]) {
		return false
	}
	_, _ = fmt.Fprintln(out, Describe(program))
	return true
}

// Metric is muster_build_info: 1, with the program, its version and the version of Go as labels.
func Metric(program string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "muster_build_info", Help: "Which build runs; always 1.",
		ConstLabels: prometheus.Labels{"program": program, "version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}
