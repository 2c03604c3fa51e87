// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package store

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"modernc.org/sqlite"
)

// lower makes SQLite's function fold all letters, as PostgreSQL's does: by itself, it folds those of ASCII.
var lower = sync.OnceValue(func() error {
	return sqlite.RegisterDeterministicScalarFunction("lower", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		if text, is := args[0].(string); is {
			return strings.ToLower(text), nil
		}
		return args[0], nil
	})
})

// openFile opens the file of a SQLite database. A transaction begins with the lock, which is "immediate" for those that write, and each connection with the pragmas.
func openFile(path, lock string, pragmas []string) (*sql.DB, error) {
	if err := lower(); err != nil {
		return nil, fmt.Errorf("preparing SQLite: %w", err)
	}
	query := url.Values{"_pragma": pragmas, "_time_format": {"sqlite"}, "_txlock": {lock}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	return db, nil
}

// resultCode is the primary result code of an error of SQLite.
func resultCode(err error) (code int, ok bool) {
	lite, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return 0, false
	}
	return lite.Code() & 0xff, true
}
