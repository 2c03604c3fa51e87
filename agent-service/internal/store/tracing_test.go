// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/apis/tracingtest"
)

func TestCallsOfTheDatabaseAreSpansOfTheirReconcile(t *testing.T) {
	collector, stop := tracingtest.Trace(t, "agent-service")
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	_, err = tracing.Reconciler("pass", reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		require.NoError(t, s.View(ctx, func(context.Context, transaction.Reader) error { return nil }))
		return reconcile.Result{}, s.Update(ctx, func(context.Context, transaction.Tx) error {
			return domain.Refuse(domain.Conflict, "Secret", "the value s3cr3t is refused")
		})
	})).Reconcile(t.Context(), reconcile.Request{})
	require.Error(t, err)
	require.NoError(t, s.SavePolls(t.Context(), nil))
	stop()

	one := func(name string) tracingtest.Span {
		return collector.Wait(t, func(span tracingtest.Span) bool { return span.Name == name })
	}
	pass, view, update := one("pass"), one("sql view"), one("sql update")
	assert.Equal(t, pass.ID, view.Parent)
	assert.Equal(t, pass.ID, update.Parent)
	assert.False(t, view.Failed)
	assert.True(t, update.Failed)
	assert.Equal(t, "Conflict", update.Message, "the text of an error may repeat values")
	assert.Equal(t, map[string]string{"db.operation.name": "update"}, update.Attributes)
	assert.NotEqual(t, pass.Trace, one("sql save polls").Trace)
}
