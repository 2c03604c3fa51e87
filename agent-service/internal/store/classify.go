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
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// errStale is a write of an object that another writer changed since it was read.
var errStale = errors.New("another transaction was in the way")

// readOnly is the code of a server that writes nothing: a standby that the address leads to during a failover, or a primary that was made so, as providers do where its disk is full.
const readOnly = "25006"

// fileAway are the result codes of SQLite for a file that cannot be read or written at the moment: SQLITE_BUSY, _LOCKED, _READONLY, _IOERR, _FULL and _CANTOPEN.
var fileAway = []int{5, 6, 8, 10, 13, 14}

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
	if code, ok := resultCode(err); ok {
		return slices.Contains(fileAway, code)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errStale) ||
		strings.Contains(err.Error(), "conn closed")
}
