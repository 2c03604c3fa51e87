// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause is the sandbox of a pod: it holds the pod's namespaces, and collects processes that end in a shared one.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for sent := range signals {
		if sent != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
				break
			}
		}
	}
}
