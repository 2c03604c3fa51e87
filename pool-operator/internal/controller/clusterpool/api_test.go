// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

func TestPoolLife(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	w.replica()

	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(5)))
	w.settled("p", 5)

	// A cluster that a user deletes is replaced.
	gone := w.clusters("p")[0]
	require.NoError(t, w.client.Delete(t.Context(), &gone))
	w.settled("p", 5)
	require.NotContains(t, w.namespaces("p"), gone.Namespace)

	w.editPool("p", testobj.Size(2))
	w.settled("p", 2)
	w.editPool("p", testobj.Size(7))
	w.settled("p", 7)

	require.NoError(t, w.client.Delete(t.Context(), w.pool("p")))
	w.eventually("the pool goes", func() bool {
		err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "p"}, &hivev1.ClusterPool{})
		return apierrors.IsNotFound(err)
	})
	require.Empty(t, w.clusters("p"))
	require.Empty(t, w.namespaces("p"))
}

func TestTwoReplicasWithoutLeaderElection(t *testing.T) {
	w := newTestEnv(t)
	w.installer()
	w.replica()
	w.replica()

	w.create(testobj.Pool("p", testobj.In(w.ns), testobj.Size(30), testobj.MaxSize(30)))
	w.settled("p", 30)
	w.editPool("p", testobj.Size(3))
	w.settled("p", 3)
	w.editPool("p", testobj.Size(12))
	w.settled("p", 12)
}
