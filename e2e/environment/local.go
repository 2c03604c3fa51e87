// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/e2e/render"
)

// LocalOptions say what a Local environment holds.
type LocalOptions struct {
	// Operators that run.
	Operators []Operator
	// Overlay is the directory that is applied; deploy/overlays/local when it is empty.
	Overlay string
	// Bare leaves the control plane without any object of Muster: no overlay is applied.
	Bare bool
	// Say receives the progress, a sentence at a time. It may be nil.
	Say func(string)
	// UnsafeNoFsync makes the store faster and unfit for anything but tests.
	UnsafeNoFsync bool
	// Prepared begins with a copy of a control plane that the first such start prepares, which is sooner: all have the same keys and UIDs, so for tests.
	Prepared bool
	// ControlPlaneArgs are flags of bin/controlplane beside those that the environment needs, such as --emulated-version=1.34 or --binaries=<directory>.
	ControlPlaneArgs []string
	// Prefix of the environment's directory below the directory for temporary files.
	Prefix string
}

// Local is a control plane on this machine, with deploy/overlays/local applied and the operators as processes under the
// ServiceAccounts that it holds. Everything lives below one directory.
type Local struct {
	// Dir holds all data and logs.
	Dir string

	options   LocalOptions
	guard     *Guard
	plane     *ControlPlane
	admin     *rest.Config
	mu        sync.Mutex
	processes map[string]*process
	closed    bool
}

// NewLocal makes the environment and returns when every operator is ready.
func NewLocal(ctx context.Context, options LocalOptions) (*Local, error) {
	if options.Say == nil {
		options.Say = func(string) {}
	}
	if options.Overlay == "" {
		options.Overlay = "deploy/overlays/local"
	}
	if options.Prefix == "" {
		options.Prefix = "muster-e2e-"
	}
	dir, err := os.MkdirTemp("", options.Prefix)
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	l := &Local{Dir: dir, options: options, processes: map[string]*process{}}
	if l.guard, err = guardDirectory(dir); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(err, l.Close(context.WithoutCancel(ctx)))
	}
	return l, nil
}

func (l *Local) start(ctx context.Context) error {
	args := slices.Clone(l.options.ControlPlaneArgs)
	if l.options.UnsafeNoFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	if l.options.Prepared {
		args = append(args, "--prepared")
	}
	started := time.Now()
	var err error
	if l.plane, err = StartControlPlane(ctx, filepath.Join(l.Dir, "controlplane"), args...); err != nil {
		return err
	}
	l.options.Say(fmt.Sprintf("control plane ready in %.1f s", time.Since(started).Seconds()))
	if l.admin, err = Read(l.plane.Kubeconfig()); err != nil {
		return err
	}
	if !l.options.Bare {
		objects, err := render.Directory(l.options.Overlay)
		if err != nil {
			return err
		}
		if err := render.Apply(ctx, l.admin, objects); err != nil {
			return err
		}
		l.options.Say(fmt.Sprintf("applied %s: %d objects", l.options.Overlay, len(objects)))
	}
	for _, operator := range l.options.Operators {
		if err := l.StartOperator(ctx, operator); err != nil {
			return err
		}
		l.options.Say(operator.Name + " ready, as " + operator.Namespace + "/" + operator.ServiceAccount)
	}
	return nil
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (l *Local) Kubeconfig() string { return l.plane.Kubeconfig() }

// Log returns the path of an operator's log.
func (l *Local) Log(operator string) string { return filepath.Join(l.Dir, operator+".log") }

// Close ends everything and removes the directory.
func (l *Local) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.keepLogs()
	for _, p := range l.processes {
		p.stop(15 * time.Second)
	}
	if l.plane != nil {
		l.plane.Close()
	}
	return l.guard.Close()
}

// keepLogs copies the operators' logs to the directory that E2E_LOGS names, to find the cause of a failure.
func (l *Local) keepLogs() {
	target := os.Getenv("E2E_LOGS")
	if target == "" || os.MkdirAll(target, 0o755) != nil { //nolint:gosec // logs hold no secrets
		return
	}
	for name := range l.processes {
		if text, err := os.ReadFile(l.Log(name)); err == nil {
			_ = os.WriteFile(filepath.Join(target, name+".log"), text, 0o644) //nolint:gosec // logs hold no secrets
		}
	}
}

// StopControlPlane ends the control plane, as an API server that is away does for the operators, which go on.
func (l *Local) StopControlPlane() { l.plane.Close() }
