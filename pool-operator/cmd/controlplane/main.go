// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command controlplane runs a Kubernetes control plane on this machine for tests, demos and development.
//
//	controlplane start      run one until it is interrupted; prints the path of its kubeconfig when it is ready
//	controlplane binaries   print where the programs are that it runs
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
)

// exitMissing is the exit status when a program has to be built first.
const exitMissing = 3

const usage = `usage: controlplane <command>

  start      run a control plane until interrupted or until the parent process ends;
             prints the path of its kubeconfig, and nothing else, when it is ready
  binaries   print where etcd, kube-apiserver, kube-controller-manager and kubectl are

"controlplane <command> -h" lists the flags of a command.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	status := dispatch(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

func dispatch(ctx context.Context, args []string) int {
	commands := map[string]func(context.Context, []string) error{"start": start, "binaries": binaries}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	if err := commands[args[0]](ctx, args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		if _, missing := errors.AsType[*controlplane.MissingBinaryError](err); missing {
			return exitMissing
		}
		return 1
	}
	return 0
}
