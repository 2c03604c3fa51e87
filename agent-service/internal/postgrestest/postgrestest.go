// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package postgrestest starts PostgreSQL for tests, from the distribution's package.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
)

// patience is for machines that are busy with other things.
const patience = 2 * time.Minute

// Server is a PostgreSQL of one test.
type Server struct {
	// URL is how to connect.
	URL string

	t    testing.TB
	bin  string
	data string
	dir  string
	port string
	attr *syscall.SysProcAttr
	proc *exec.Cmd
	log  record
}

// record keeps what the server writes.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// Log is what the server has written to its log.
func (s *Server) Log() string {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.text.String()
}

// Start starts an empty server that ends with the test. Without PostgreSQL on this machine the test is skipped, and
// fails where CI=true.
func Start(t testing.TB) *Server {
	t.Helper()
	bin := find()
	needtest.Part(t, bin != "", "PostgreSQL is not installed (Debian package postgresql)")
	dir, err := os.MkdirTemp("", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{t: t, bin: bin, dir: dir, data: filepath.Join(dir, "data"), port: porttest.Free(t)}
	s.attr = s.owner()
	s.fill()
	s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", s.port)
	s.Up()
	t.Cleanup(s.Down)
	return s
}

// fill makes the data directory: initdb computes for seconds what is the same each time, so it is kept in the user's cache, and copied.
func (s *Server) fill() {
	s.t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		s.t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(s.bin, "initdb"))
	if err != nil {
		s.t.Fatal(err)
	}
	kept := filepath.Join(cache, "muster", fmt.Sprintf("postgres-%d-%d", major(s.bin), info.ModTime().Unix()))
	if _, err := os.Stat(kept); err == nil {
		s.copy(kept, s.data)
		return
	}
	s.must("initdb", "-D", s.data, "-U", "postgres", "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil { //nolint:gosec // it holds no secret
		s.t.Fatal(err)
	}
	whole, err := os.MkdirTemp(filepath.Dir(kept), "postgres-new-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer os.RemoveAll(whole) //nolint:errcheck // another test may have been first
	s.copy(s.data, filepath.Join(whole, "data"))
	if err := os.Rename(filepath.Join(whole, "data"), kept); err != nil && !errors.Is(err, fs.ErrExist) {
		s.t.Fatal(err)
	}
}

// copy copies a directory with its owner.
func (s *Server) copy(from, to string) {
	s.t.Helper()
	if out, err := exec.CommandContext(s.t.Context(), "cp", "-R", "-p", from, to).CombinedOutput(); err != nil {
		s.t.Fatalf("copying %s: %v\n%s", from, err, out)
	}
}

// Up starts the server and waits until it answers.
func (s *Server) Up() {
	s.t.Helper()
	// Other clean-ups of the test may still need the server, and the context of a test ends before its clean-up.
	s.proc = exec.CommandContext(context.WithoutCancel(s.t.Context()), filepath.Join(s.bin, "postgres"), "-D", s.data, "-p", s.port, "-k", s.dir, "-h", "127.0.0.1", "-F", "-c", "max_connections=200")
	s.proc.SysProcAttr, s.proc.Stderr = s.attr, &s.log
	if err := s.proc.Start(); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if exec.CommandContext(ctx, filepath.Join(s.bin, "pg_isready"), "-h", "127.0.0.1", "-p", s.port, "-q").Run() == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.t.Fatal("PostgreSQL does not start")
}

// Down ends the server at once, as a crash does.
func (s *Server) Down() {
	if s.proc == nil {
		return
	}
	_ = s.proc.Process.Signal(syscall.SIGQUIT)
	_ = s.proc.Wait()
	s.proc = nil
}

// Demote makes a server that is down a hot standby at its next start. It is the primary again after pg_promote.
func (s *Server) Demote() {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.data, "standby.signal"), nil, 0o644); err != nil { //nolint:gosec // it is empty
		s.t.Fatal(err)
	}
}

// Hang stops all of the server, connections included, which stay open and answer nothing until GoOn.
func (s *Server) Hang() { s.signal(syscall.SIGSTOP) }

// GoOn ends a Hang.
func (s *Server) GoOn() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	// The one that starts the others is the first to stop.
	own := s.proc.Process.Pid
	if err := syscall.Kill(own, sig); err != nil {
		s.t.Fatal(err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", own, own))
	if err != nil {
		s.t.Fatal(err)
	}
	for child := range strings.FieldsSeq(string(children)) {
		if pid, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
}

func (s *Server) must(name string, arguments ...string) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), filepath.Join(s.bin, name), arguments...)
	command.SysProcAttr, command.Dir = s.attr, s.dir
	if out, err := command.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// owner is who runs the server: it refuses to run as root.
func (s *Server) owner() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return attr
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		s.t.Fatal("there is no user postgres to run PostgreSQL: the Debian package makes one")
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	if err := os.Chown(s.dir, uid, gid); err != nil {
		s.t.Fatal(err)
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ids of a user are small
	return attr
}

// find is the directory of the newest installed version, empty without one.
func find() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		if path, err := exec.LookPath("initdb"); err == nil {
			return filepath.Dir(path)
		}
		return ""
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })
	return filepath.Dir(newest)
}

func major(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return n
}
