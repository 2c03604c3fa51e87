// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
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

// Each statement is a span of its transaction, with its verb and table and with none of its values.
func TestStatementsAreSpansOfTheirTransaction(t *testing.T) {
	collector, stop := tracingtest.Trace(t, "agent-service")
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	const secret = "s3cr3t"
	require.NoError(t, s.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		env := infraEnv(domain.Owner{User: secret})
		if err := tx.PutInfraEnv(ctx, env); err != nil {
			return err
		}
		_, err := tx.InfraEnv(ctx, env.ID)
		return err
	}))
	require.NoError(t, s.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		c, err := r.Cluster(ctx, uuid.NewString())
		assert.Nil(t, c)
		return err
	}))
	stop()
	one := func(name string) tracingtest.Span {
		return collector.Wait(t, func(span tracingtest.Span) bool { return span.Name == name })
	}
	update, insert, read, view, missing := one("sql update"), one("sql INSERT infra_envs"), one("sql SELECT infra_envs"), one("sql view"), one("sql SELECT clusters")
	assert.Equal(t, update.ID, insert.Parent)
	assert.Equal(t, update.ID, read.Parent)
	assert.Equal(t, view.ID, missing.Parent)
	assert.False(t, missing.Failed, "a row that is not there is an answer")
	assert.Equal(t, map[string]string{"db.operation.name": "INSERT", "db.collection.name": "infra_envs"}, insert.Attributes)
	for _, span := range []tracingtest.Span{insert, read} {
		assert.NotContains(t, fmt.Sprintf("%+v", span), secret)
	}
}

func TestStatementsAreNamedByVerbAndTable(t *testing.T) {
	for text, want := range map[string][2]string{
		"SELECT body FROM inventories WHERE infra_env_id = 'x'": {"SELECT", "inventories"},
		`SELECT count(*) FROM "hosts" AS "h"`:                   {"SELECT", "hosts"},
		`INSERT INTO "files" ("name") VALUES ('secret FROM x')`: {"INSERT", "files"},
		"UPDATE hosts SET name = 'FROM secret'":                 {"UPDATE", "hosts"},
		"delete from events where id in (select 1)":             {"DELETE", "events"},
		"SAVEPOINT one":              {"SAVEPOINT", ""},
		"SELECT pg_notify('a', 'b')": {"SELECT", ""},
	} {
		verb, table := store.Subject(text)
		assert.Equal(t, want, [2]string{verb, table}, text)
	}
}
