// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment_test

import (
	"bufio"
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

	"github.com/muster-io/muster/e2e/environment"
)

const victimVariable = "MUSTER_TEST_VICTIM"

// TestMain is also the program that a test kills: it makes an environment, says where it is, and waits to be killed.
func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) == "" {
		os.Exit(m.Run())
	}
	local, err := environment.NewLocal(victimContext(), environment.LocalOptions{UnsafeNoFsync: true, Prepared: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(local.Dir)
	select {}
}

func TestLocalLeavesNothingBehind(t *testing.T) {
	needControlPlane(t)
	var said []string
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{UnsafeNoFsync: true, Prepared: true, Say: func(s string) { said = append(said, s) }})
	require.NoError(t, err)
	assert.NotEmpty(t, runningFrom(t, local.Dir))
	require.NoError(t, local.Close(t.Context()))
	assert.NoDirExists(t, local.Dir)
	assert.Empty(t, runningFrom(t, local.Dir))
	assert.Len(t, said, 2)
	assert.NoError(t, local.Close(t.Context()), "closing twice is fine")
}

// Every operator becomes ready with the rights of its own account, and no others.
func TestEveryOperatorRunsUnderItsOwnAccount(t *testing.T) {
	needControlPlane(t)
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{UnsafeNoFsync: true, Prepared: true, Operators: environment.All()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	require.NoError(t, local.Failed())
	for _, operator := range environment.All() {
		log, err := os.ReadFile(local.Log(operator.Name))
		require.NoError(t, err)
		assert.NotContains(t, string(log), "is forbidden", "a right is missing")
	}
}

func TestLocalLeavesNothingBehindWhenItIsKilled(t *testing.T) {
	needControlPlane(t)
	victim := exec.CommandContext(t.Context(), os.Args[0])
	victim.Env = append(os.Environ(), victimVariable+"=1")
	victim.Stderr = os.Stderr
	stdout, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	dir := strings.TrimSpace(line)
	require.NotEmpty(t, runningFrom(t, dir))

	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoDirExists(c, dir)
		assert.Empty(c, runningFrom(t, dir))
	}, patience, 100*time.Millisecond)
}

func needControlPlane(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
}

// runningFrom returns the command lines of processes that mention a directory, guards left out: they end last.
func runningFrom(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), dir) && !strings.HasPrefix(string(text), "sh\x00") {
			found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}
