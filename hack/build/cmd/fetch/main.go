// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fetch downloads released programs of a control plane and checks their SHA-256 sums.
//
//	fetch -kubernetes v1.2.3 -etcd v3.2.1 -o DIRECTORY PROGRAM...
//
// KUBERNETES_RELEASES and ETCD_RELEASES in the environment name mirrors. DOWNLOAD_IDLE is how long a server may send nothing,
// 30s by default.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/muster-io/muster/hack/build/fetch"
	"github.com/muster-io/muster/hack/build/progress"
)

func main() {
	kubernetes := flag.String("kubernetes", "", "version of Kubernetes")
	etcd := flag.String("etcd", "", "version of etcd")
	dir := flag.String("o", "", "directory for the programs")
	flag.Parse()
	if *kubernetes == "" || *etcd == "" || *dir == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: fetch -kubernetes VERSION -etcd VERSION -o DIRECTORY PROGRAM...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, fetch.Releases{
		Kubernetes: *kubernetes, Etcd: *etcd, Arch: runtime.GOARCH,
		KubernetesURL: root("KUBERNETES_RELEASES", "https://dl.k8s.io/release"),
		EtcdURL:       root("ETCD_RELEASES", "https://github.com/etcd-io/etcd/releases/download"),
	}, *dir, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "fetch: %v\nfetch: leave CONTROLPLANE empty to build the control plane from source instead\n", err)
		os.Exit(1)
	}
}

func root(variable, usual string) string {
	return strings.TrimRight(cmp.Or(os.Getenv(variable), usual), "/")
}

func run(ctx context.Context, releases fetch.Releases, dir string, programs []string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a control plane is released for Linux only, and this is %s", runtime.GOOS)
	}
	idle, err := time.ParseDuration(cmp.Or(os.Getenv("DOWNLOAD_IDLE"), "30s"))
	if err != nil {
		return fmt.Errorf("DOWNLOAD_IDLE: %w", err)
	}
	releases.Idle = idle
	line := &progress.Line{Out: os.Stderr, Terminal: progress.IsTerminal(os.Stderr), Last: time.Now()}
	defer line.Erase()
	for i, name := range programs {
		releases.Report = func(name string, bytes int64) {
			line.Update(time.Now(), fmt.Sprintf("control plane: %d of %d programs, %s: %d MiB", i, len(programs), name, bytes>>20))
		}
		if err := releases.Into(ctx, dir, name); err != nil {
			return err
		}
		line.Say(fmt.Sprintf("control plane: %s downloaded, its SHA-256 sum is right", name))
	}
	return nil
}
