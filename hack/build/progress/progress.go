// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress runs "go build" and shows how far it is: how many packages are compiled, of those that the build cache
// lacks.
package progress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// cancelWait is how long go may take to end after it was interrupted.
const cancelWait = 10 * time.Second

// Build is one run of "go build".
type Build struct {
	// Tests is true to compile what the tests of the packages are linked from, and no program: "go test" compiles without a
	// word.
	Tests bool
	// Label says what is built.
	Label string
	// Dir is the directory of the module.
	Dir string
	// Flags are flags of "go build".
	Flags []string
	// Packages are what is built.
	Packages []string
	// Out is where progress and the messages of go appear; Terminal is true if a line there can be redrawn.
	Out      io.Writer
	Terminal bool
	// Go is the go command; empty for the one on the PATH.
	Go string
}

// Run builds and returns the error of the go command. It says nothing if nothing has to be compiled. The packages under test
// themselves are compiled by "go test", with their tests.
func (b Build) Run(ctx context.Context) error {
	started := time.Now()
	view := &view{line: Line{Out: b.Out, Terminal: b.Terminal, Last: started}, label: b.Label, tests: b.Tests, started: started, parallel: runtime.GOMAXPROCS(0)}
	if err := b.look(ctx, view); err != nil {
		return err
	}
	if len(view.stale) > 0 {
		end, err := b.takeTurn(ctx, view)
		if err != nil {
			return err
		}
		defer end()
		// Packages that were compiled meanwhile are cached now.
		if err := b.look(ctx, view); err != nil {
			return err
		}
	}
	if len(view.stale) > 0 {
		view.line.Say(fmt.Sprintf("%s: %d of %d packages have to be compiled", b.Label, len(view.stale), view.all))
	}
	packages := b.Packages
	if b.Tests {
		if packages = view.libraries(); len(packages) == 0 {
			return nil
		}
	}
	args := append(append([]string{"build", "-v"}, b.Flags...), packages...)
	if _, err := view.watch(b.command(ctx, args)); err != nil {
		return fmt.Errorf("building %s: %w", b.Label, err)
	}
	if len(view.stale) > 0 {
		view.line.Say(fmt.Sprintf("%s: done in %.0f s", b.Label, time.Since(started).Seconds()))
	}
	return nil
}

// look finds what has to be compiled. It takes about a second, and downloads modules that are missing.
func (b Build) look(ctx context.Context, view *view) error {
	listed, err := view.watch(b.command(ctx, b.list()))
	if err != nil {
		return fmt.Errorf("listing the packages of %s: %w", b.Label, err)
	}
	view.expect(listed)
	return nil
}

// list returns the arguments that list the packages of the build, and whether each has to be compiled.
func (b Build) list() []string {
	args := []string{"list", "-deps", "-f", "{{.Stale}} {{.Name}} {{.ImportPath}}"}
	if b.Tests {
		args = append(append(args, "-test"), b.Flags...)
	}
	return append(args, b.Packages...)
}

func (b Build) command(ctx context.Context, args []string) *exec.Cmd {
	program := b.Go
	if program == "" {
		program = "go"
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.Dir
	if os.Getenv("GOGC") == "" { // compilers live for seconds: less collection saves a twentieth, and the limit keeps them small
		cmd.Env = append(os.Environ(), "GOGC=400", "GOMEMLIMIT=1GiB")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go ends the compilers that it has started
	cmd.WaitDelay = cancelWait
	return cmd
}

// view is what is shown of a build. One goroutine uses it at a time.
type view struct {
	line     Line
	label    string
	tests    bool // no program is linked
	started  time.Time
	parallel int

	all        int             // packages of the build
	stale      map[string]bool // those of them that have to be compiled, true once go has begun
	begun      int
	downloaded int
}

// expect takes what has to be compiled from the output of "go list".
func (v *view) expect(listed string) {
	v.stale, v.all = map[string]bool{}, 0
	for entry := range strings.Lines(listed) {
		fields := strings.Fields(entry)
		if len(fields) != 3 || fields[1] == "main" { // a program is always linked
			continue
		}
		v.all++
		if fields[0] == "true" {
			v.stale[fields[2]] = false
		}
	}
}

// libraries returns the packages that have to be compiled, without those of Go's own, which are compiled with them. Their
// import paths have no domain.
func (v *view) libraries() []string {
	var paths []string
	for path := range v.stale {
		if domain, _, _ := strings.Cut(path, "/"); strings.Contains(domain, ".") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// watch runs a go command to its end, reads its messages and returns its output.
func (v *view) watch(cmd *exec.Cmd) (string, error) {
	var output bytes.Buffer
	cmd.Stdout = &output
	reader, writer := io.Pipe()
	cmd.Stderr = writer
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("starting go: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = writer.Close()
		ended <- err
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			lines <- scanner.Text()
		}
		_, _ = io.Copy(io.Discard, reader) // what is no line does not block the command
	}()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case text, ok := <-lines:
			if !ok {
				v.line.Erase()
				err := <-ended
				if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
					return "", fmt.Errorf("go %s: %w", cmd.Args[1], err)
				}
				return output.String(), err
			}
			v.read(text)
		case now := <-tick.C:
			if text := v.text(now); text != "" {
				v.line.Update(now, text)
			}
		}
	}
}

// read counts a line of go's messages, or shows it.
func (v *view) read(text string) {
	if begun, ok := v.stale[text]; ok {
		if !begun {
			v.stale[text] = true
			v.begun++
		}
		return
	}
	switch {
	case strings.HasPrefix(text, "go: downloading "):
		v.downloaded++
	case v.stale != nil && !strings.ContainsAny(text, " :#\t"): // a package that the list did not expect
	default:
		v.line.Say(text)
	}
}

// text says how far the build is; "" before there is something to say. "go build -v" names a package when its compilation
// begins, so as many as run in parallel are not counted as compiled.
func (v *view) text(now time.Time) string {
	seconds := now.Sub(v.started).Seconds()
	switch {
	case v.stale == nil && v.downloaded > 0:
		return fmt.Sprintf("%s: %d modules downloaded, %.0f s", v.label, v.downloaded, seconds)
	case v.stale == nil || (len(v.stale) == 0 && seconds < 2):
		return ""
	case v.begun == len(v.stale) && v.tests:
		return fmt.Sprintf("%s: last packages, %.0f s", v.label, seconds)
	case v.begun == len(v.stale):
		return fmt.Sprintf("%s: linking, %.0f s", v.label, seconds)
	}
	return fmt.Sprintf("%s: %d of %d packages compiled, %.0f s", v.label, max(0, v.begun-v.parallel), len(v.stale), seconds)
}
