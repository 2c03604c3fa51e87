// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/mattn/go-sqlite3"
)

// With the race detector, SQLite is the one in C: the detector would watch each byte that the one in Go moves, for minutes, and it has no goroutines to race.

// file makes connections to the file of a SQLite database.
type file struct {
	sqlite  sqlite3.SQLiteDriver
	address string
}

// Connect implements driver.Connector.
func (f *file) Connect(context.Context) (driver.Conn, error) { return f.sqlite.Open(f.address) }

// Driver implements driver.Connector.
func (f *file) Driver() driver.Driver { return &f.sqlite }

func openFile(path, lock string, pragmas []string) (*sql.DB, error) {
	configure := func(c *sqlite3.SQLiteConn) error {
		for _, pragma := range pragmas {
			if _, err := c.Exec("PRAGMA "+pragma, nil); err != nil {
				return fmt.Errorf("configuring the database: %w", err)
			}
		}
		return c.RegisterFunc("lower", strings.ToLower, true)
	}
	address := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_txlock=" + lock
	return sql.OpenDB(&file{sqlite3.SQLiteDriver{ConnectHook: configure}, address}), nil
}

func resultCode(err error) (code int, ok bool) {
	lite, ok := errors.AsType[sqlite3.Error](err)
	return int(lite.Code), ok
}
