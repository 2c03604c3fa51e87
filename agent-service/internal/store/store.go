// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store keeps the domain in SQL: a SQLite file, or PostgreSQL for several replicas. The same code serves both.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

//go:embed migrations
var migrations embed.FS

// patience is how long a database of several replicas may take for one call. One that takes longer is away, and a transaction that its replica has left alone for so
// long is undone: others may wait for it.
const patience = 8 * time.Second

// Store implements transaction.Store.
type Store struct {
	write *bun.DB
	read  *bun.DB
	// writing and reading are the same databases, for prepared statements.
	writing, reading *prepared
	// group is of SQLite's updates.
	group      *group
	heartbeats heartbeats
	// listen is how to connect for news of other replicas, nil where there are none.
	listen *pgx.ConnConfig
	// again reads the address once more; nil where it stays as it is.
	again func() (string, error)
	// origin tells this replica's news from others'.
	origin string
	// notify is of who listens, nil before. Until doubtedUntil, in nanoseconds since 1970, news of this replica count as others'.
	notify       atomic.Pointer[func([]domain.Change)]
	doubtedUntil atomic.Int64
	// Statements counts what was sent to the database, for metrics and benchmarks.
	Statements atomic.Int64
}

var _ transaction.Store = (*Store)(nil)

// Option changes how a database is opened.
type Option func(*Store)

// Reread has the address of PostgreSQL read again for each new connection: passwords and client certificates are rotated. Another server or database, and an address that cannot be read, count at the
// next start only.
func Reread(address func() (string, error)) Option { return func(s *Store) { s.again = address } }

// Open connects to a database and brings its schema up to date. The address is postgres://… or the path of a SQLite
// file, which is made when it is missing.
func Open(ctx context.Context, address string, options ...Option) (*Store, error) {
	s := &Store{origin: uuid.NewString()}
	for _, option := range options {
		option(s)
	}
	var err error
	if strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://") {
		err = s.openPostgres(ctx, address)
	} else {
		err = s.openSQLite(ctx, strings.TrimPrefix(address, "sqlite:"))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.writing, s.reading = &prepared{db: s.write.DB, count: &s.Statements}, &prepared{db: s.read.DB, count: &s.Statements}
	if s.listen == nil {
		if err := errors.Join(s.writing.prepare(ctx), s.reading.prepare(ctx)); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	shared := s.read == s.write
	s.write = s.write.WithQueryHook(counter{s})
	s.group = &group{db: s.write, prepared: s.writing, versions: newVersions()}
	if shared {
		s.read = s.write
	} else {
		s.group.checkpoints.db = s.read.DB
		s.read = s.read.WithQueryHook(counter{s})
	}
	return s, nil
}

// openSQLite has one connection that writes: SQLite serializes writers anyway, so that no writer waits for a lock in vain.
func (s *Store) openSQLite(ctx context.Context, path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("finding the database: %w", err)
	}
	pragmas := []string{"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(1)", "temp_store(MEMORY)"}
	open := func(connections int, lock string, more ...string) (*bun.DB, error) {
		db, err := openFile(absolute, lock, slices.Concat(pragmas, more))
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		return bun.NewDB(db, sqlitedialect.New()), nil
	}
	// The updates of a group change more pages than fit into the usual 2 MiB.
	if s.write, err = open(1, "immediate", "cache_size(-8192)", fmt.Sprintf("wal_autocheckpoint(%d)", mostLogPages)); err != nil {
		return err
	}
	if s.read, err = open(4, "deferred"); err != nil {
		return err
	}
	s.heartbeats = heartbeatsOfSQLite
	return s.migrate(ctx, goose.DialectSQLite3, "migrations/sqlite")
}

// postgresConfig reads the address of PostgreSQL.
func postgresConfig(address string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, errors.New("reading the address of the database: it is not a valid PostgreSQL URL") // the cause would show the password
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	keeps := config.OnPgError
	config.OnPgError = func(c *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnly && keeps(c, err) // another connection may lead to the primary
	}
	return config, nil
}

// renewed is the configuration of a new connection.
func (s *Store) renewed(known *pgx.ConnConfig) *pgx.ConnConfig {
	if s.again == nil {
		return known
	}
	address, err := s.again()
	if err != nil {
		return known
	}
	config, err := postgresConfig(address)
	if err != nil || config.Host != known.Host || config.Port != known.Port || config.Database != known.Database {
		return known
	}
	if name := known.RuntimeParams[applicationName]; name != "" {
		config.RuntimeParams[applicationName] = name
	}
	return config
}

// applicationName is the parameter by which administrators know a connection.
const applicationName = "application_name"

func (s *Store) openPostgres(ctx context.Context, address string) error {
	config, err := postgresConfig(address)
	if err != nil {
		return err
	}
	s.listen, s.heartbeats = config.Copy(), heartbeatsOfPostgres
	s.listen.RuntimeParams[applicationName] = "agent-service listening"
	renew := stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
		*c = *s.renewed(c)
		return nil
	})
	db := stdlib.OpenDB(*config, renew, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, fmt.Sprintf("SET idle_in_transaction_session_timeout = %d", patience.Milliseconds()))
		return err
	}))
	db.SetMaxOpenConns(30)
	db.SetMaxIdleConns(30)
	s.write = bun.NewDB(db, pgdialect.New())
	s.read = s.write
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("preparing the lock of migrations: %w", err)
	}
	return s.migrate(ctx, goose.DialectPostgres, "migrations/postgres", goose.WithSessionLocker(locker))
}

func (s *Store) migrate(ctx context.Context, dialect goose.Dialect, dir string, options ...goose.ProviderOption) error {
	files, err := fs.Sub(migrations, dir)
	if err != nil {
		return fmt.Errorf("finding the migrations: %w", err)
	}
	all, err := inFiles(files)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(dialect, s.write.DB, nil, append(options, goose.WithGoMigrations(all...))...)
	if err != nil {
		return fmt.Errorf("preparing migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrating the database: %w", classify(err))
	}
	sources := provider.ListSources()
	return s.refuseLater(ctx, sources[len(sources)-1].Version)
}

// inFiles makes a migration of each file, which the database executes as a whole. The parser of goose takes 4 MiB of memory
// for a line, which the race detector makes it take again and again.
func inFiles(files fs.FS) ([]*goose.Migration, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("listing the migrations: %w", err)
	}
	all := make([]*goose.Migration, 0, len(names))
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("reading the version of migration %s: %w", name, err)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("reading migration %s: %w", name, err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		all = append(all, goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, up)
			return err
		}}, nil))
	}
	return all, nil
}

// refuseLater refuses a database that a later version of the service changed so that a program that knows no more migrations would misread it. It changes nothing.
func (s *Store) refuseLater(ctx context.Context, known int64) error {
	var oldest int64
	if err := s.write.QueryRowContext(ctx, "SELECT version FROM oldest_reader").Scan(&oldest); err != nil {
		return fmt.Errorf("reading which versions can read the database: %w", classify(err))
	}
	if oldest > known {
		return fmt.Errorf("a later version of agent-service changed the database (it needs schema %d, this version knows %d): start the later version, or restore the backup of before the upgrade", oldest, known)
	}
	return nil
}

// Close ends all connections.
func (s *Store) Close() error {
	var errs []error
	if s.group != nil {
		s.group.checkpoints.close()
	}
	if s.write != nil {
		errs = append(errs, s.write.Close())
	}
	if s.read != nil && s.read != s.write {
		errs = append(errs, s.read.Close())
	}
	return errors.Join(errs...)
}

// Ping implements transaction.Store.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	// A standby, and a file on a full disk, can be read: only a write tells.
	if s.listen != nil {
		_, err := s.write.DB.ExecContext(ctx, "UPDATE oldest_reader SET version = version WHERE false")
		return classify(err)
	}
	return classify(s.group.update(ctx, func(ctx context.Context, tx bun.Tx) ([]func(), error) {
		_, err := tx.Tx.ExecContext(ctx, "PRAGMA user_version = 1")
		return nil, err
	}))
}

func (s *Store) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.listen == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// Shared implements transaction.Store.
func (s *Store) Shared() bool { return s.listen != nil }
