// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pod-network keeps the network of pods on a node: routes to the pods of other nodes, and masquerading.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/muster-io/muster/agent-service/internal/podnetwork"
)

func main() {
	o := podnetwork.Options{Say: func(format string, values ...any) { fmt.Printf(format+"\n", values...) }}
	flag.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the node")
	flag.StringVar(&o.Node, "node", "", "name of the node")
	flag.Func("pod-cidrs", "ranges of all pods in the cluster, separated by commas", func(text string) error {
		for part := range strings.SplitSeq(text, ",") {
			prefix, err := netip.ParsePrefix(part)
			if err != nil {
				return err
			}
			o.PodCIDRs = append(o.PodCIDRs, prefix.Masked())
		}
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := podnetwork.Run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pod-network:", err)
		os.Exit(1)
	}
}
