// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplanetest_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/controlplanetest"
)

// childVariable makes TestChild a child process of TestNothingIsLeftBehind and TestTwoBinariesInParallel.
const childVariable = "CONTROLPLANETEST_CHILD"

// TestChild starts a control plane, tells where, and waits for its end by whatever its parent does.
func TestChild(t *testing.T) {
	how := os.Getenv(childVariable)
	if how == "" {
		t.Skip("runs only as a child of other tests")
	}
	_, err := os.Stdout.WriteString("kubeconfig " + controlplanetest.Kubeconfig(t) + "\n")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, os.Stdin)
	require.NoError(t, err)
	if how == "panic" {
		panic("a test that panics")
	}
}

// child is a running test binary with its own control plane.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	dir   string
}

func startChild(t *testing.T, how string) *child {
	t.Helper()
	controlplanetest.Kubeconfig(t) // Skips where there is no control plane to be had.
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), childVariable+"="+how)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "kubeconfig "); ok {
			return &child{cmd: cmd, stdin: stdin, dir: filepath.Dir(path)}
		}
	}
	t.Fatal("the child test printed no kubeconfig")
	return nil
}

// processes returns the commands of the living processes that work in a directory.
func processes(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	var found []string
	for _, link := range all {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd+"/", dir+"/") {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "comm"))
			found = append(found, strings.TrimSpace(string(name)))
		}
	}
	return found
}

func TestNothingIsLeftBehind(t *testing.T) {
	for how, end := range map[string]func(*child) error{
		"a test binary that ends":      func(c *child) error { return c.stdin.Close() },
		"panic":                        func(c *child) error { return c.stdin.Close() },
		"a test binary that is killed": func(c *child) error { return c.cmd.Process.Kill() },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := startChild(t, how)
			require.Len(t, processes(t, c.dir), 3, "etcd, kube-apiserver and kube-controller-manager run")
			require.NoError(t, end(c))
			assert.Eventually(t, func() bool {
				_, err := os.Stat(c.dir)
				return os.IsNotExist(err) && len(processes(t, c.dir)) == 0
			}, patience, 50*time.Millisecond, "processes and directory are gone")
		})
	}
}

func TestTwoBinariesInParallel(t *testing.T) {
	mine := controlplanetest.Kubeconfig(t)
	other := startChild(t, "neighbour")
	require.NotEqual(t, filepath.Dir(mine), other.dir)
	ours, err := os.ReadFile(mine)
	require.NoError(t, err)
	theirs, err := os.ReadFile(filepath.Join(other.dir, "kubeconfig"))
	require.NoError(t, err)
	require.NotEqual(t, string(ours), string(theirs))
}
