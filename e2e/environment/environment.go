// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package environment makes clusters in which Muster runs, and takes them down again, however the program that asked for one ends.
package environment

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Environment is a cluster in which Muster runs. A journey needs its kubeconfig and nothing else.
type Environment interface {
	// Kubeconfig returns the path of an administrator's kubeconfig.
	Kubeconfig() string
	// Close takes down everything that was made for the environment. It may be called again.
	Close(ctx context.Context) error
}

// Config reads the kubeconfig of an environment. There is no limit on the client's side: the server has its own.
func Config(e Environment) (*rest.Config, error) { return Read(e.Kubeconfig()) }

// Read reads a kubeconfig. There is no limit on the client's side.
func Read(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	config.QPS = -1
	return config, nil
}

// Existing is a cluster in which an administrator runs Muster; the tests do not stop it.
type Existing string

// Kubeconfig returns the path that Existing is.
func (e Existing) Kubeconfig() string { return string(e) }

// Close does nothing.
func (Existing) Close(context.Context) error { return nil }

// FromEnvironment makes what the variables ask for: E2E_KUBECONFIG names a cluster that is there; E2E_ENVIRONMENT is "local" (the default: a control
// plane on this machine, operators as processes) or "kind".
func FromEnvironment(ctx context.Context, say func(string)) (Environment, error) {
	if path := os.Getenv("E2E_KUBECONFIG"); path != "" {
		return Existing(path), nil
	}
	switch kind := os.Getenv("E2E_ENVIRONMENT"); kind {
	case "", "local":
		return NewLocal(ctx, LocalOptions{Operators: All(), Say: say, UnsafeNoFsync: true, Prepared: true})
	case "kind":
		return NewKind(ctx, KindOptions{Say: say})
	default:
		return nil, fmt.Errorf("E2E_ENVIRONMENT is %q: write local or kind", kind)
	}
}
