// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/apis/controlplanetest"
)

func TestTheLeaseHasOneHolderAtATime(t *testing.T) {
	config := controlplanetest.Start(t)
	http, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	candidate := func(name string) *lease {
		return &lease{api: &client{http: http, server: config.Host, groups: map[string][]apiResource{}}, identity: name}
	}
	a, b, c := candidate("a"), candidate("b"), candidate("c")
	now := noon
	try := func(l *lease) bool {
		t.Helper()
		require.NoError(t, l.try(t.Context(), now))
		return l.held(now)
	}
	pass := func(d time.Duration) { now = now.Add(d) }

	assert.Less(t, renewDeadline+tryTimeout, leaseDuration, "the last attempt of a holder ends before another can take it")
	assert.True(t, try(a))
	assert.False(t, try(b))
	pass(renewDeadline - time.Second)
	assert.True(t, try(a), "it is renewed")
	assert.False(t, try(b))
	pass(leaseDuration - time.Second)
	assert.False(t, a.held(now), "the holder gives up")
	assert.False(t, try(b), "before another can take it")
	pass(time.Second)
	assert.True(t, try(b))
	assert.False(t, try(a), "it has another holder")
	assert.False(t, try(c))

	// Two that see the same version do not both write it.
	pass(leaseDuration)
	stale := *a
	assert.True(t, try(a))
	require.NoError(t, stale.write(t.Context(), now, "PUT", leaseCollection+"/"+leaseName, read(t, config, b.seen)))
	assert.False(t, stale.held(now))

	require.NoError(t, a.release(t.Context()))
	assert.False(t, a.held(now))
	assert.True(t, try(c), "the Lease is free at once")
	require.NoError(t, a.release(t.Context()), "that of another is left alone")
	assert.True(t, try(c))
	there := read(t, config, "")
	assert.Equal(t, "c", holderOf(there))
	assert.EqualValues(t, 4, *there.Spec.LeaseTransitions)

	again := candidate("c")
	assert.True(t, try(again), "a machine that starts again is its own successor")
}

// read is the Lease; with a version, as one that is out of date.
func read(t *testing.T, config *rest.Config, version string) *coordinationv1.Lease {
	t.Helper()
	api, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	there, err := api.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), leaseName, metav1.GetOptions{})
	require.NoError(t, err)
	if version != "" {
		there.ResourceVersion = version
	}
	return there
}
