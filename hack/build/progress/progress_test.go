// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program writes a module with one program and one package of it that no build cache has, and returns its directory.
func program(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":        "module example.com/program\n\ngo 1.26.0\n",
		"main.go":       "package main\n\nimport \"example.com/program/part\"\n\nfunc main() { println(part.Name) }\n",
		"part/part.go":  source,
		"part/stamp.go": fmt.Sprintf("package part\n\n// Stamp differs in each test.\nconst Stamp = %d\n", time.Now().UnixNano()),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func build(t *testing.T, dir string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Build{Label: "program", Dir: dir, Flags: []string{"-o", filepath.Join(dir, "program")}, Packages: []string{"."}, Out: &out}.Run(t.Context())
	return out.String(), err
}

func TestBuildCountsWhatTheCacheLacks(t *testing.T) {
	dir := program(t, "package part\n\n// Name is printed.\nconst Name = \"part\"\n")
	text, err := build(t, dir)
	require.NoError(t, err)
	// The runtime may have to be compiled too, where these are the first tests.
	assert.Regexp(t, `(?s)^program: [0-9]+ of [0-9]+ packages have to be compiled\n.*program: done in [0-9]+ s\n$`, text)
	assert.FileExists(t, filepath.Join(dir, "program"))

	text, err = build(t, dir)
	require.NoError(t, err)
	assert.Empty(t, text, "all packages are cached")
}

// "go test" has nothing left to compile of what the tests import, and a package that only tests import is counted too.
func TestLibrariesOfTestsAreCompiledBeforeThem(t *testing.T) {
	dir := program(t, "package part\n\n// Name is printed.\nconst Name = \"part\"\n")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "help"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "help/help.go"), fmt.Appendf(nil, "package help\n\n// Stamp differs.\nconst Stamp = %d\n", time.Now().UnixNano()), 0o600))
	test := "package main\n\nimport (\n\t\"testing\"\n\n\t\"example.com/program/help\"\n)\n\nfunc TestIt(t *testing.T) { t.Log(help.Stamp) }\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main_test.go"), []byte(test), 0o600))
	var out bytes.Buffer
	tests := Build{Label: "tests", Dir: dir, Tests: true, Packages: []string{"."}, Out: &out}
	require.NoError(t, tests.Run(t.Context()))
	assert.Regexp(t, `^tests: [0-9]+ of [0-9]+ packages have to be compiled\n(?s:.*)tests: done in [0-9]+ s\n$`, out.String())
	stale := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Stale}}", "./part", "./help")
	stale.Dir = dir
	listed, err := stale.Output()
	require.NoError(t, err)
	assert.Equal(t, "false\nfalse\n", string(listed))
	assert.NoFileExists(t, filepath.Join(dir, "program"), "no program is linked")

	out.Reset()
	require.NoError(t, tests.Run(t.Context()))
	assert.Empty(t, out.String(), "all libraries are cached")
}

func TestErrorsOfTheCompilerAreShown(t *testing.T) {
	text, err := build(t, program(t, "package part\n\nfunc Name() int { return undefined }\n"))
	require.ErrorContains(t, err, "building program")
	assert.Contains(t, text, "undefined: undefined")
	assert.NotContains(t, text, "done in")
}

// list is what "go list" says of a build with four packages, of which three have to be compiled.
const list = "false runtime runtime\ntrue a example.com/a\ntrue b example.com/b\ntrue c example.com/c\ntrue main example.com/cmd\n"

// A package is named when its compilation begins; those that run are not counted as compiled.
func TestTextSaysHowFar(t *testing.T) {
	now := time.Now()
	v := &view{label: "it", started: now, parallel: 2}
	assert.Empty(t, v.text(now), "no progress is known yet")
	v.read("go: downloading example.com/x v1.0.0")
	assert.Equal(t, "it: 1 modules downloaded, 3 s", v.text(now.Add(3*time.Second)))
	v.expect(list)
	assert.Equal(t, 4, v.all, "packages without the program")
	assert.Equal(t, "it: 0 of 3 packages compiled, 3 s", v.text(now.Add(3*time.Second)))
	v.read("example.com/a")
	v.read("example.com/a")
	assert.Equal(t, "it: 0 of 3 packages compiled, 4 s", v.text(now.Add(4*time.Second)))
	v.read("example.com/b")
	v.parallel = 1
	assert.Equal(t, "it: 1 of 3 packages compiled, 5 s", v.text(now.Add(5*time.Second)))
	v.read("example.com/c")
	assert.Equal(t, "it: linking, 6 s", v.text(now.Add(6*time.Second)))
}

// fakeGo is a go command that lists the packages and then runs the script as the build. Its directory is its build cache.
func fakeGo(t *testing.T, build string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "go")
	script := "#!/bin/sh\ncd \"$(dirname \"$0\")\"\ncase $1 in\nenv) pwd; exit ;;\nlist)\n  [ -e compiled ] || printf '" + strings.ReplaceAll(list, "\n", `\n`) + "'\n  exit ;;\nesac\n" + build
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

func TestTheLineMovesInATerminal(t *testing.T) {
	var out bytes.Buffer
	err := Build{
		Label: "it", Packages: []string{"."}, Out: &out, Terminal: true,
		Go: fakeGo(t, "echo example.com/a >&2\necho '# example.com/a' >&2\nsleep 1\n"),
	}.Run(t.Context())
	require.NoError(t, err)
	assert.Contains(t, out.String(), "\r\x1b[Kit: 0 of 3 packages compiled, ")
	assert.Contains(t, out.String(), "# example.com/a\n", "messages of go stay")
	assert.Regexp(t, `\r\x1b\[Kit: done in [0-9]+ s\n$`, out.String())
}

// Two suites that begin together lack the same packages.
func TestBuildsSideBySideCompileAPackageOnce(t *testing.T) {
	program := fakeGo(t, "echo once >> builds\nsleep 0.5\ntouch compiled\n")
	errs := make(chan error)
	for range 2 {
		go func() {
			errs <- Build{Label: "it", Tests: true, Packages: []string{"."}, Out: &bytes.Buffer{}, Go: program}.Run(t.Context())
		}()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	compiled, err := os.ReadFile(filepath.Join(filepath.Dir(program), "builds"))
	require.NoError(t, err)
	assert.Equal(t, "once\n", string(compiled))
}

func TestPlainLinesAreAtLeastTenSecondsApart(t *testing.T) {
	var out bytes.Buffer
	start := time.Now()
	l := &Line{Out: &out, Last: start}
	for tenth := range 250 {
		l.Update(start.Add(time.Duration(tenth)*100*time.Millisecond), fmt.Sprint("at ", tenth))
	}
	assert.Equal(t, "at 100\nat 200\n", out.String())
}

func TestALongLineIsCut(t *testing.T) {
	var out bytes.Buffer
	l := &Line{Out: &out, Terminal: true}
	l.Update(time.Now(), strings.Repeat("ä", 200))
	assert.Equal(t, "\r\x1b[K"+strings.Repeat("ä", width), out.String())
}

func TestTheStatusOfGoIsReturned(t *testing.T) {
	var out bytes.Buffer
	err := Build{Label: "it", Packages: []string{"."}, Out: &out, Go: fakeGo(t, "echo out of memory >&2\nexit 3\n")}.Run(t.Context())
	require.ErrorContains(t, err, "exit status 3")
	assert.Contains(t, out.String(), "out of memory")
}

func TestAnInterruptEndsGo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	marker := filepath.Join(t.TempDir(), "interrupted")
	// The build tells that it has begun by its first line.
	out := &beginning{began: cancel}
	err := Build{
		Label: "it", Packages: []string{"."}, Out: out,
		Go: fakeGo(t, "trap 'touch "+marker+"; exit 130' INT\necho began: >&2\nwhile :; do sleep 0.1; done\n"),
	}.Run(ctx)
	require.Error(t, err)
	assert.FileExists(t, marker)
}

type beginning struct{ began func() }

func (b *beginning) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "began:") {
		b.began()
	}
	return len(text), nil
}
