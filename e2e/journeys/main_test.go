// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package journeys_test walks the ways of users, through a cluster in which Muster runs and of which it knows nothing but a kubeconfig.
// See environment.FromEnvironment for the clusters that there are.
package journeys_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"

	"github.com/muster-io/muster/apis/addresstest"
	"github.com/muster-io/muster/e2e/environment"
)

var (
	// administrator is the configuration that the kubeconfig holds; nil with -short.
	administrator *rest.Config
	// kubeconfig is the file that administrator was read from.
	kubeconfig string
	// local is the environment when this program owns its processes, for the journeys in which they die.
	local *environment.Local
	// nodes is true where hosted clusters run as pods on nodes that this machine reaches.
	nodes bool
	// foreign is true where an administrator runs Muster, with settings of their own.
	foreign bool
)

// together is how many journeys go on at a time, and so bounds how many hosted clusters run at once on a small machine.
const together = 3

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(together)); err != nil {
		panic(err)
	}
	log.SetLogger(logr.Discard())
	if testing.Short() {
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	environment.HostedListenAddress = addresstest.Reachable()
	env, err := environment.FromEnvironment(ctx, func(s string) { fmt.Println("e2e:", s) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer func() {
		if err := env.Close(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
	}()
	interrupted := context.AfterFunc(ctx, func() { // tests do not listen to it, and nothing may be left behind
		_ = env.Close(context.Background())
		os.Exit(130)
	})
	defer interrupted()
	if administrator, err = environment.Config(env); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	kubeconfig = env.Kubeconfig()
	local, _ = env.(*environment.Local)
	_, foreign = env.(environment.Existing)
	_, nodes = env.(*environment.Kind)
	code := m.Run()
	describe(env, code)
	return code
}

// describe prints what helps to find the cause of a failure.
func describe(env environment.Environment, code int) {
	if code == 0 {
		return
	}
	if local != nil {
		if err := local.Failed(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
		}
	}
	if kind, ok := env.(*environment.Kind); ok {
		fmt.Fprintln(os.Stderr, kind.Describe(context.Background()))
	}
}
