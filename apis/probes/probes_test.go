// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package probes_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/muster-io/muster/apis/probes"
)

type registry struct{ health, ready healthz.Checker }

func (r *registry) AddHealthzCheck(_ string, check healthz.Checker) error {
	r.health = check
	return nil
}

func (r *registry) AddReadyzCheck(_ string, check healthz.Checker) error {
	r.ready = check
	return nil
}

type caches chan struct{}

func (c caches) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

func TestAnOperatorIsReadyWhenItsCachesAreFilled(t *testing.T) {
	added, filled := &registry{}, make(caches)
	require.NoError(t, probes.Add(added, filled))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	request := httptest.NewRequestWithContext(ended, http.MethodGet, "/readyz", http.NoBody)
	require.NoError(t, added.health(request))
	require.Error(t, added.ready(request))
	close(filled)
	require.NoError(t, added.ready(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody)))
}
