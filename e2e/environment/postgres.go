// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/muster-io/muster/apis/porttest"
)

// ErrNoPostgres says what is missing where it is.
var ErrNoPostgres = errors.New("PostgreSQL is not installed (Debian package postgresql)")

// StartPostgres starts the distribution's PostgreSQL with its data below dir, waiting for the disk as it does by default. It ends with this process, or when it is killed.
func StartPostgres(ctx context.Context, dir string) (url string, server *exec.Cmd, err error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", nil, ErrNoPostgres
	}
	bin := filepath.Dir(found[len(found)-1])
	own := filepath.Join(dir, "postgres")
	if err := errors.Join(os.Mkdir(own, 0o700), os.Chmod(dir, 0o755)); err != nil { //nolint:gosec // the server's user has to get to its own directory
		return "", nil, err
	}
	as, err := postgresUser(own)
	if err != nil {
		return "", nil, err
	}
	run := func(name string, arguments ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, name), arguments...)
		cmd.SysProcAttr, cmd.Dir = as, own
		return cmd
	}
	data := filepath.Join(own, "data")
	if said, err := run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-locale", "-E", "UTF8").CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("making a database: %w: %s", err, said)
	}
	port, err := porttest.Find()
	if err != nil {
		return "", nil, err
	}
	server = run("postgres", "-D", data, "-p", port, "-k", own, "-h", "127.0.0.1", "-c", "max_connections=200")
	if err := server.Start(); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for run("pg_isready", "-h", "127.0.0.1", "-p", port, "-q").Run() != nil {
		select {
		case <-ctx.Done():
			return "", server, errors.New("PostgreSQL does not answer")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return "postgres://postgres@127.0.0.1:" + port + "/postgres?sslmode=disable", server, nil
}

// postgresUser is who runs the server: it refuses to run as root.
func postgresUser(dir string) (*syscall.SysProcAttr, error) {
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return as, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		return nil, errors.Join(ErrNoPostgres, err)
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ids of a user are small
	return as, os.Chown(dir, uid, gid)
}
