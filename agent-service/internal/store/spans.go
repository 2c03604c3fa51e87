// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/apis/tracing"
)

// call begins a transaction or another call of the store, which is a span of its own. done ends it with what came of it.
func (s *Store) call(ctx context.Context, name string) (called context.Context, done func(error)) {
	ctx, cancel := s.patient(ctx)
	ctx, end := tracing.Call(ctx, "sql "+name, attribute.String("db.operation.name", name))
	return ctx, func(err error) {
		end(kindOf(err))
		cancel()
	}
}

// statement begins the span of one statement. It has the statement's verb and table, and none of its text or values.
func statement(ctx context.Context, verb, table string) (called context.Context, done func(error)) {
	ctx, end := tracing.Call(ctx, strings.TrimSpace("sql "+verb+" "+table), attribute.String("db.operation.name", verb), attribute.String("db.collection.name", table))
	return ctx, func(err error) {
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		end(kindOf(classify(err)))
	}
}

// kindOf is an error that tells of the kind of another one only: the text of a database may repeat values.
func kindOf(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(cmp.Or(string(domain.KindOf(err)), "Internal"))
}

// subject is the verb of a statement, in capitals, and the first table that it reads or writes; empty for a statement without one.
func subject(text string) (verb, table string) {
	verb, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	verb = strings.ToUpper(verb)
	before := map[string]string{"SELECT": "FROM", "DELETE": "FROM", "INSERT": "INTO", "UPDATE": ""}
	word, of := before[verb]
	if !of {
		return verb, ""
	}
	found := word == ""
	for part := range strings.FieldsSeq(rest) {
		if found {
			return verb, strings.Trim(part, `"(),;`)
		}
		found = strings.EqualFold(part, word)
	}
	return verb, ""
}

// counter counts statements, and makes each a span.
type counter struct{ store *Store }

// spanKey is where an event keeps what ends its span.
type spanKey struct{}

// BeforeQuery implements bun.QueryHook.
func (c counter) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	c.store.Statements.Add(1)
	if event.Stash == nil {
		event.Stash = map[any]any{}
	}
	verb, table := subject(event.Query)
	ctx, event.Stash[spanKey{}] = statement(ctx, verb, table)
	return ctx
}

// AfterQuery implements bun.QueryHook.
func (counter) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	if done, is := event.Stash[spanKey{}].(func(error)); is {
		done(event.Err)
	}
}
