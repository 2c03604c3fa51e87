// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// errStale is a write of an object that another writer changed since it was read.
var errStale = errors.New("another transaction was in the way")

// readOnly is the code of a server that writes nothing: a standby that the address leads to during a failover, or a primary that was made so, as providers do where its disk is full.
const readOnly = "25006"

// repeatable is true for errors that the same transaction may not meet again.
func repeatable(err error) bool {
	if errors.Is(err, errStale) {
		return true
	}
	var pg *pgconn.PgError
	// 23505 and 23503: another transaction made or deleted what this one did not see.
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "23505" || pg.Code == "23503")
}

// classify makes a refusal of errors that say that the database is away.
func classify(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || domain.KindOf(err) != "" {
		return err
	}
	if away(err) {
		return domain.Away(err)
	}
	return err
}

func away(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Connection exceptions, insufficient resources, operator intervention.
		return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "53") || strings.HasPrefix(pg.Code, "57") || pg.Code == readOnly
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		switch lite.Code() & 0xff {
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
			return true
		}
		return false
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errStale) ||
		strings.Contains(err.Error(), "conn closed")
}
