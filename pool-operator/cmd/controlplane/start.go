// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
)

// startOptions are the flags of the start command.
type startOptions struct {
	dir, binaries string
	bind          netip.Addr
	services      string
	emulated      string
	crds          []string
	noFsync       bool
	prepared      bool
	untilStdin    bool
}

func parseStart(args []string) (startOptions, error) {
	var o startOptions
	flags := flag.NewFlagSet("start", flag.ExitOnError)
	flags.StringVar(&o.dir, "dir", "", "data directory, kept at the end (default: a temporary one, removed at the end)")
	flags.StringVar(&o.binaries, "binaries", "", "directory to look for the programs in first")
	flags.TextVar(&o.bind, "bind", netip.AddrFrom4([4]byte{127, 0, 0, 1}), "`address` that the API server listens on")
	flags.StringVar(&o.services, "service-cluster-ip-range", "10.96.0.0/16", "`prefix` of the addresses of Services")
	flags.StringVar(&o.emulated, "emulated-version", "", "`minor` of Kubernetes to behave as, such as 1.34: at most three below that of the programs")
	flags.BoolVar(&o.noFsync, "unsafe-no-fsync", false, "do not wait for the disk; data may be lost in a power cut")
	flags.BoolVar(&o.prepared, "prepared", false, "begin as a copy of a control plane with the same programs and kinds that the first such start prepares, in the user's cache: sooner, and with the same keys and UIDs as all others, so for tests")
	flags.BoolVar(&o.untilStdin, "until-stdin-closes", false, "end when standard input is closed")
	flags.Func("crds", "`directory` of CustomResourceDefinitions to install; may be repeated", func(dir string) error {
		o.crds = append(o.crds, dir)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

// start runs a control plane until the context ends or the process that started this one does.
func start(ctx context.Context, args []string) (err error) {
	o, err := parseStart(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go watchParent(ctx, cancel, o.untilStdin)

	services, err := netip.ParsePrefix(o.services)
	if err != nil {
		return fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	programs, err := controlplane.FindBinaries(o.binaries)
	if err != nil {
		return err
	}
	dir := o.dir
	if dir == "" {
		scratch, failed := controlplane.NewScratch(ctx)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, scratch.Remove()) }()
		dir = scratch.Dir
	}
	options := controlplane.Options{
		Dir: dir, Binaries: programs, Host: o.bind, ServiceClusterIPRange: services, UnsafeNoFsync: o.noFsync, EmulatedVersion: o.emulated,
	}
	if o.prepared && !controlplane.HasData(dir) {
		if options.CopyOf, err = prepared(ctx, options, o.crds); err != nil {
			return fmt.Errorf("--prepared: %w", err)
		}
	}
	plane, err := controlplane.Open(ctx, options)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, plane, o, options.CopyOf != ""), end(context.WithoutCancel(ctx), plane, o))
}

// serve brings the control plane up, says so, and returns when it is to end or has ended by itself. A copy holds the kinds.
func serve(ctx context.Context, plane *controlplane.Plane, o startOptions, isCopy bool) error {
	err := plane.Start(ctx)
	if err == nil {
		err = provideCRDs(plane, o.crds, isCopy)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Start failed because ctx was cancelled meanwhile
	}
	if err != nil {
		return explain(err)
	}
	fmt.Println(plane.KubeconfigPath())
	select {
	case <-ctx.Done():
		return nil
	case <-plane.Done():
		return explain(plane.Err())
	}
}

// end stops the processes. Data that are thrown away need no orderly shutdown.
func end(ctx context.Context, plane *controlplane.Plane, o startOptions) error {
	if o.dir == "" {
		return plane.Destroy()
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	plane.Stop(ctx)
	return plane.Close()
}

// explain prints the end of the log that belongs to an error.
func explain(err error) error {
	var died *controlplane.ProcessDiedError
	var notReady *controlplane.NotReadyError
	var tail []string
	switch {
	case errors.As(err, &died):
		tail = died.LogTail
	case errors.As(err, &notReady):
		tail = notReady.LogTail
	}
	for _, line := range tail {
		fmt.Fprintln(os.Stderr, "  |", line)
	}
	return err
}
