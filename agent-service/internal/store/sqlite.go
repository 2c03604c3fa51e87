// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package store

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"modernc.org/sqlite"
)

// openFile opens the file of a SQLite database. A transaction begins with the lock, which is "immediate" for those that write, and each connection with the pragmas.
func openFile(path, lock string, pragmas []string) (*sql.DB, error) {
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
