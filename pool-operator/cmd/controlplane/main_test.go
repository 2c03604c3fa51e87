// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"

	"github.com/muster-io/muster/apis/needtest"
)

const (
	// asProgram makes the test binary behave as the program, asShell as a shell that starts it and waits.
	asProgram = "CONTROLPLANE_TEST_PROGRAM"
	asShell   = "CONTROLPLANE_TEST_SHELL"
	patience  = 2 * time.Minute
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asShell) != "":
		shell()
	case os.Getenv(asProgram) != "":
		main()
	default:
		os.Exit(m.Run())
	}
}

// shell starts the program and does not look after it.
func shell() {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), asShell+"=", asProgram+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		os.Exit(1)
	}
}

// running is a program under test.
type running struct {
	cmd        *exec.Cmd
	stdin      io.Closer
	stdout     io.Reader
	stderr     *bytes.Buffer
	kubeconfig string
}

// startProgram runs the program and returns when it is ready. Temporary directories are those of this test alone.
func startProgram(t *testing.T, temp, as string, args ...string) *running {
	t.Helper()
	r := beginProgram(t, temp, as, args...)
	r.untilReady(t)
	return r
}

func beginProgram(t *testing.T, temp, as string, args ...string) *running {
	t.Helper()
	_, err := controlplane.FindBinaries("")
	needtest.NoError(t, err)
	r := &running{cmd: exec.Command(os.Args[0], append([]string{"start", "--unsafe-no-fsync"}, args...)...), stderr: &bytes.Buffer{}}
	r.cmd.Env = append(os.Environ(), as+"=1", "TMPDIR="+temp)
	r.cmd.Stderr = r.stderr
	stdin, err := r.cmd.StdinPipe()
	require.NoError(t, err)
	r.stdin = stdin
	r.stdout, err = r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

func (r *running) untilReady(t *testing.T) {
	t.Helper()
	line, err := bufio.NewReader(r.stdout).ReadString('\n')
	require.NoError(t, err, "%s", r.stderr)
	r.kubeconfig = strings.TrimSpace(line)
}

func (r *running) dir() string { return filepath.Dir(r.kubeconfig) }

// workers are the processes that work in a directory.
func workers(t *testing.T, dir string) []int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	var pids []int
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd+"/", dir+"/") {
			pid, err := strconv.Atoi(strings.Split(link, "/")[2])
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestEnds(t *testing.T) {
	for name, test := range map[string]struct {
		as   string
		args []string
		end  func(*running) error
	}{
		"when interrupted":  {as: asProgram, end: func(r *running) error { return r.cmd.Process.Signal(syscall.SIGINT) }},
		"when terminated":   {as: asProgram, end: func(r *running) error { return r.cmd.Process.Signal(syscall.SIGTERM) }},
		"with its input":    {as: asProgram, args: []string{"--until-stdin-closes"}, end: func(r *running) error { return r.stdin.Close() }},
		"with its parent":   {as: asShell, end: func(r *running) error { return r.cmd.Process.Kill() }},
		"with a dead child": {as: asProgram, end: func(r *running) error { return killEtcd(r.dir()) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			temp := t.TempDir()
			r := startProgram(t, temp, test.as, test.args...)
			require.Len(t, workers(t, r.dir()), 3)
			require.NoError(t, test.end(r))
			require.Eventually(t, func() bool {
				_, err := os.Stat(r.dir())
				return os.IsNotExist(err) && len(workers(t, temp)) == 0
			}, patience, 20*time.Millisecond, "no process or file is left")
		})
	}
}

func killEtcd(dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, "run", "etcd.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

func TestKilledProgramLeavesNoProcessAndTheNextOneItsDirectory(t *testing.T) {
	temp := t.TempDir()
	killed := startProgram(t, temp, asProgram)
	living := startProgram(t, temp, asProgram)
	require.NoError(t, killed.cmd.Process.Kill())
	require.Eventually(t, func() bool { return len(workers(t, killed.dir())) == 0 }, patience, 10*time.Millisecond)
	_ = killed.cmd.Wait()
	require.DirExists(t, killed.dir())

	next := startProgram(t, temp, asProgram)
	assert.NoDirExists(t, killed.dir(), "swept")
	assert.Len(t, workers(t, living.dir()), 3, "a neighbour that lives is not touched")
	for _, r := range []*running{living, next} {
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, r.cmd.Wait())
	}
}

func TestDirectoryThatIsNamedIsKeptWithItsAddress(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	var server string
	for range 2 {
		r := startProgram(t, t.TempDir(), asProgram, "--dir", dir)
		config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
		require.NoError(t, err)
		if server != "" {
			assert.Equal(t, server, config.Host)
		}
		server = config.Host
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, r.cmd.Wait())
		require.FileExists(t, r.kubeconfig)
		require.Empty(t, workers(t, dir))
	}
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: moons.example.org}
spec:
  group: example.org
  names: {kind: Moon, plural: moons}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

// servesMoons makes sure that the kind of the definition is served, and returns a client.
func (r *running) servesMoons(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	resources, err := client.Discovery().ServerResourcesForGroupVersion("example.org/v1")
	require.NoError(t, err)
	require.Len(t, resources.APIResources, 1)
	return client
}

func TestDefinitionsAreServedWhenItIsReady(t *testing.T) {
	crds := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(crds, "moons.yaml"), []byte(definition), 0o600))
	r := startProgram(t, t.TempDir(), asProgram, "--crds", crds)
	r.servesMoons(t)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, r.cmd.Wait())
}

func TestMissingProgramsAreReported(t *testing.T) {
	cmd := exec.Command(os.Args[0], "start")
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir(), "KUBEBUILDER_ASSETS=")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, exitMissing, exit.ExitCode())
	assert.Contains(t, string(out), "make controlplane")
}
