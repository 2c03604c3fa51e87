// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probes answers /healthz and /readyz alike in all operators that run a manager.
package probes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// patience is how long a probe waits for caches. It is the default timeout of probes.
const patience = time.Second

var errNotSynced = errors.New("the caches are not filled yet")

// Registry takes checks, as a manager does.
type Registry interface {
	AddHealthzCheck(name string, check healthz.Checker) error
	AddReadyzCheck(name string, check healthz.Checker) error
}

// Caches are what reconciles read from.
type Caches interface {
	// WaitForCacheSync waits until the caches are filled; false where ctx ends before.
	WaitForCacheSync(ctx context.Context) bool
}

// Add makes an operator alive while it answers, and ready while its caches are filled.
func Add(to Registry, caches Caches) error {
	if err := to.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health probe: %w", err)
	}
	if err := to.AddReadyzCheck("caches", synced(caches)); err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	return nil
}

func synced(caches Caches) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), patience)
		defer cancel()
		if !caches.WaitForCacheSync(ctx) {
			return errNotSynced
		}
		return nil
	}
}
