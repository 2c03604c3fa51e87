// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package netnstest runs tests in a network of their own, in which they are root: they make links, addresses and routes that
// the machine does not see, and that end with them. No rights are needed where the kernel gives users namespaces.
package netnstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/needtest"
)

// inside is set in the network of the tests.
const inside = "MUSTER_TEST_NETWORK"

// Main is for TestMain: it runs the tests of the package in a network that has nothing but a loopback interface, and ends the
// process. Where the kernel refuses such a network they run in that of the machine, and Need ends those that need their own.
func Main(m *testing.M) {
	if os.Getenv(inside) != "" {
		// Without the program ip, Need ends the tests.
		if err := run("link", "set", "lo", "up"); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(m.Run())
	}
	// The signal of a parent's end is that of its thread's.
	runtime.LockOSThread()
	again := exec.Command(os.Args[0], os.Args[1:]...) //nolint:noctx,gosec // it ends with this process, and is the same program
	again.Stdin, again.Stdout, again.Stderr, again.Env = os.Stdin, os.Stdout, os.Stderr, append(os.Environ(), inside+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		again.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		again.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := again.Start(); err != nil {
		os.Exit(m.Run())
	}
	err := again.Wait()
	if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(max(again.ProcessState.ExitCode(), -again.ProcessState.ExitCode())) // a signal is -1
}

// Need ends a test that is not in a network of its own.
func Need(t testing.TB) {
	t.Helper()
	needtest.Part(t, os.Getenv(inside) != "", "the kernel gives tests no network of their own: unshare --user --net says why")
	_, err := exec.LookPath("ip")
	needtest.Part(t, err == nil, "there is no ip (Debian: iproute2) to make networks with")
}

func run(arguments ...string) error {
	if said, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil { //nolint:noctx // it is quick
		return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, said)
	}
	return nil
}

// IP runs ip with the words of a command, and fails the test where it fails.
func IP(t testing.TB, command string) {
	t.Helper()
	require.NoError(t, run(strings.Fields(command)...))
}
