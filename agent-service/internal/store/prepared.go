// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Statements of what happens for every host again and again. Their values are given apart, so that a database reads each of them once: SQLite takes longer to
// read a statement than to carry it out.
const (
	selectInfraEnv = "SELECT doc, created_at, revision FROM infra_envs WHERE id = ?"
	selectCluster  = "SELECT doc, created_at, revision FROM clusters WHERE id = ?"
	selectHost     = "SELECT doc, created_at, revision FROM hosts WHERE infra_env_id = ? AND host_id = ?"
	// The next three are for what is in memory: documents are read where it is not what is stored.
	compareInfraEnv = "SELECT created_at, revision FROM infra_envs WHERE id = ?"
	compareCluster  = "SELECT created_at, revision FROM clusters WHERE id = ?"
	compareHost     = "SELECT created_at, revision FROM hosts WHERE infra_env_id = ? AND host_id = ?"
	selectMembers   = "SELECT infra_env_id, host_id, created_at, revision, doc FROM hosts WHERE cluster_id = ? ORDER BY infra_env_id, host_id"
	selectRevisions = "SELECT infra_env_id, host_id, created_at, revision FROM hosts WHERE cluster_id = ? ORDER BY infra_env_id, host_id"
	selectMachine   = "SELECT infra_env_id, host_id, created_at, revision, doc FROM hosts WHERE host_id = ? AND org_id = ? AND (? <> '' OR user_name = ?) " +
		"AND infra_env_id IN (SELECT id FROM infra_envs WHERE kube_namespace = ?) ORDER BY infra_env_id"
	selectInventory = "SELECT body FROM inventories WHERE infra_env_id = ? AND host_id = ?"
	insertHost      = "INSERT INTO hosts (infra_env_id, host_id, cluster_id, user_name, org_id, state, role, search, name, created_at, revision, doc) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
	upsertInventory = "INSERT INTO inventories (infra_env_id, host_id, body) VALUES (?, ?, ?) ON CONFLICT (infra_env_id, host_id) DO UPDATE SET body = excluded.body"
	upsertFile      = "INSERT INTO files (cluster_id, name, size, updated_at, body) VALUES (?, ?, ?, ?, ?) " +
		"ON CONFLICT (cluster_id, name) DO UPDATE SET size = excluded.size, updated_at = excluded.updated_at, body = excluded.body"
	updateCluster = "UPDATE clusters SET name = ?, user_name = ?, org_id = ?, kube_namespace = ?, kube_name = ?, status = ?, revision = ?, doc = ? WHERE id = ? AND revision = ?"
	updateHost    = "UPDATE hosts SET cluster_id = ?, user_name = ?, org_id = ?, state = ?, role = ?, search = ?, name = ?, revision = ?, doc = ? WHERE infra_env_id = ? AND host_id = ? AND revision = ?"
	// upsertEvent counts an event with its repetition where there is one.
	upsertEvent = "INSERT INTO events (id, position, fold, name, infra_env_id, host_id, cluster_id, severity, category, message, at, last_at, count, for_infra_env, for_cluster, request_id, props, reported) " +
		"VALUES (" + eventID + ", " + nextPosition + ", ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?) " +
		"ON CONFLICT (id) DO UPDATE SET count = events.count + 1, last_at = excluded.last_at, position = excluded.position"
	// trimEvents deletes the oldest events that a host reported.
	trimEvents = "DELETE FROM events WHERE reported AND infra_env_id = ? AND host_id = ? AND position <= " +
		"(SELECT position FROM events WHERE reported AND infra_env_id = ? AND host_id = ? ORDER BY position DESC LIMIT 1 OFFSET ?)"
	// pruneEvents keeps the last event: positions go on after it.
	pruneEvents = "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE last_at < ? AND position < (SELECT max(position) FROM events) ORDER BY last_at LIMIT ?)"

	beginOne = "SAVEPOINT one"
	undoOne  = "ROLLBACK TO one"
	endOne   = "RELEASE one"

	eventID      = "(SELECT max(id) FROM events WHERE fold = ? AND last_at > ?)"
	nextPosition = "(SELECT coalesce(max(position), 0) + 1 FROM events)"
	timeLayout   = "2006-01-02 15:04:05.999999-07:00"
)

// prepared carries out statements of this file.
type prepared struct {
	db *sql.DB
	// statements are nil for PostgreSQL, whose driver keeps what it prepared itself.
	statements map[string]*sql.Stmt
	count      *atomic.Int64
}

// prepare reads the statements. It is done before there are transactions, which may have the only connection.
func (p *prepared) prepare(ctx context.Context) error {
	p.statements = map[string]*sql.Stmt{}
	for _, text := range []string{
		selectInfraEnv, selectCluster, selectHost, compareInfraEnv, compareCluster, compareHost, selectMembers, selectRevisions, selectMachine, selectInventory, insertHost, upsertInventory, upsertFile, updateCluster,
		updateHost, upsertEvent,
		trimEvents, pruneEvents, saveHeartbeats, beginOne, undoOne, endOne,
	} {
		statement, err := p.db.PrepareContext(ctx, text) //nolint:sqlclosecheck // it lives as long as the database is open
		if err != nil {
			return fmt.Errorf("preparing a statement: %w", err)
		}
		p.statements[text] = statement
	}
	return nil
}

// query begins to read rows. Its span ends when the database has answered, before the rows are read.
func (p *prepared) query(ctx context.Context, tx *sql.Tx, text, lock string, values ...any) (*sql.Rows, error) {
	p.count.Add(1)
	verb, table := subject(text)
	_, done := statement(ctx, verb, table)
	rows, err := p.read(ctx, tx, text, lock, values)
	done(err)
	return rows, err
}

func (p *prepared) read(ctx context.Context, tx *sql.Tx, text, lock string, values []any) (*sql.Rows, error) {
	if statement := p.statements[text]; statement != nil {
		if tx != nil {
			statement = tx.StmtContext(ctx, statement) //nolint:sqlclosecheck // it ends with the transaction
		}
		return statement.QueryContext(ctx, values...)
	}
	text = numbered(text)
	if lock != "" {
		text += " FOR " + lock
	}
	if tx != nil {
		return tx.QueryContext(ctx, text, values...)
	}
	return p.db.QueryContext(ctx, text, values...)
}

// exec returns how many rows the statement wrote. Outside of a transaction (tx is nil), it is one of SQLite.
func (p *prepared) exec(ctx context.Context, tx *sql.Tx, text string, values ...any) (int64, error) {
	p.count.Add(1)
	verb, table := subject(text)
	_, done := statement(ctx, verb, table)
	rows, err := p.carryOut(ctx, tx, text, values...)
	done(err)
	return rows, err
}

// carryOut is exec for what is not counted: the statements around those of an update.
func (p *prepared) carryOut(ctx context.Context, tx *sql.Tx, text string, values ...any) (int64, error) {
	var result sql.Result
	var err error
	if statement := p.statements[text]; statement != nil {
		for i, value := range values {
			if at, is := value.(time.Time); is {
				values[i] = at.UTC().Format(timeLayout) // as all times in the file are
			}
		}
		if tx != nil {
			statement = tx.StmtContext(ctx, statement) //nolint:sqlclosecheck // it ends with the transaction
		}
		result, err = statement.ExecContext(ctx, values...)
	} else {
		result, err = tx.ExecContext(ctx, numbered(text), values...)
	}
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// sequences are where PostgreSQL, which has many writers, takes numbers from.
var sequences = strings.NewReplacer(nextPosition, "nextval('event_position')", eventID, "coalesce("+eventID+", nextval(pg_get_serial_sequence('events', 'id')))")

// numbered is a statement as PostgreSQL takes it.
func numbered(text string) string {
	parts := strings.Split(text, "?")
	var out strings.Builder
	for i, part := range parts {
		if i > 0 {
			out.WriteString("$" + strconv.Itoa(i))
		}
		out.WriteString(part)
	}
	return out.String()
}
