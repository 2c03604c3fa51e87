// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo does the main job of Muster on this machine, and shows it. Each operator has its acts in a file of its own.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/e2e/environment"
)

// Options say how the demo runs.
type Options struct {
	// Out is where it is shown: redrawn in place if it is a terminal, plain lines if not.
	Out *os.File
	// Keep leaves everything running at the end, until the context ends.
	Keep bool
}

// act is one part of the demo. It fails, or what it was to show has been seen.
type act struct {
	// title says what is being done, as a sentence without a full stop.
	title string
	// play does it and returns a sentence that says what came of it.
	play func(ctx context.Context, s *stage) (string, error)
}

// stage is what acts work with.
type stage struct {
	screen *screen
	local  *environment.Local
	admin  *rest.Config
	client client.Client
	// claimed is the path of the claimed cluster's kubeconfig, "" until there is one.
	claimed string
	// closers end what acts have started beside the cluster.
	closers []func()
}

// acts returns all acts, in their order. An operator that joins adds its own here.
func acts() []act {
	return slices.Concat(discoveryActs(), agentActs(), poolActs(), addressActs())
}

// operators returns the operators that take part in the acts.
func operators() []environment.Operator {
	return []environment.Operator{environment.PoolOperator(), environment.DiscoveryOperator(), environment.IPAMOperator(), environment.AgentService()}
}

// Run plays all acts. It leaves nothing behind, however it ends.
func Run(ctx context.Context, o Options) error {
	s := &stage{screen: newScreen(o.Out)}
	defer s.screen.close()
	started := time.Now()
	err := s.play(ctx)
	if err == nil {
		s.screen.say("")
		s.screen.done(fmt.Sprintf("all of it worked, in %.0f s", time.Since(started).Seconds()))
		for _, line := range nextSteps(o.Keep, s.local.Dir, s.local.Kubeconfig(), s.claimed, s.local.Console()) {
			s.screen.say(line)
		}
		if o.Keep {
			s.screen.working("running until you press Ctrl-C")
			<-ctx.Done()
		}
	} else if s.local != nil && ctx.Err() == nil {
		err = errors.Join(err, s.local.Failed())
	}
	s.screen.working("cleaning up")
	s.screen.show(nil)
	for _, end := range s.closers {
		end()
	}
	if s.local != nil {
		err = errors.Join(err, s.local.Close(context.WithoutCancel(ctx)))
	}
	s.screen.idle()
	if err == nil {
		s.screen.done("all processes and files of the demo are removed")
	}
	return err
}

func (s *stage) play(ctx context.Context) error {
	if err := s.setUp(ctx); err != nil {
		return err
	}
	for _, act := range acts() {
		s.screen.working(act.title)
		outcome, err := act.play(ctx, s)
		if err != nil {
			s.screen.failed(act.title)
			return fmt.Errorf("%s: %w", act.title, err)
		}
		s.screen.done(outcome)
	}
	return nil
}

// setUp makes the control plane and starts the operators.
func (s *stage) setUp(ctx context.Context) error {
	s.screen.working("starting a control plane: etcd, kube-apiserver, kube-controller-manager")
	local, err := environment.NewLocal(ctx, environment.LocalOptions{
		Operators: operators(), Say: s.screen.done, Prefix: "muster-demo-", UnsafeNoFsync: true,
	})
	if err != nil {
		return err
	}
	s.local = local
	if s.admin, err = environment.Config(local); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), hivev1.AddToScheme(scheme), metal3v1.AddToScheme(scheme), ipamv1.AddToScheme(scheme), infrav1.AddToScheme(scheme), agentv1.AddToScheme(scheme), hiveextv1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("making a scheme: %w", err)
	}
	if s.client, err = client.New(s.admin, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

// until calls check a few times a second until it says true, and draws what it returns meanwhile.
func (s *stage) until(ctx context.Context, limit time.Duration, check func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %s", limit))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := check(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || ok {
			return err
		}
		if err := s.local.Failed(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
