// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package porttest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program makes this test binary a program that prints its ports.
const program = "MUSTER_PORTTEST_PROGRAM"

// many are so many that some are the same if they are only drawn.
const many = 300

func TestMain(m *testing.M) {
	if os.Getenv(program) == "" {
		os.Exit(m.Run())
	}
	for i := range 2 * many {
		if i%50 == 0 {
			runtime.GC() // closes sockets that nothing refers to
		}
		port, err := Find()
		if err != nil {
			panic(err)
		}
		fmt.Println(port)
	}
}

func TestAPortIsGivenOnce(t *testing.T) {
	given := map[string]bool{}
	for range many {
		port := Free(t)
		require.False(t, given[port], "port %s is given twice", port)
		given[port] = true
		listener, err := net.Listen("tcp", "127.0.0.1:"+port)
		require.NoError(t, err)
		require.NoError(t, listener.Close())
	}
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), program+"=true")
	out, err := other.Output()
	require.NoError(t, err)
	ports := strings.Fields(string(out))
	require.Len(t, ports, 2*many)
	for _, port := range ports {
		assert.False(t, given[port], "port %s is given to another process, or to it twice", port)
		given[port] = true
	}
}

func TestAPortInUseIsNotGiven(t *testing.T) {
	taken := map[string]bool{}
	for range many {
		port, claim, err := find()
		require.NoError(t, err)
		listener, err := net.Listen("tcp", "127.0.0.1:"+port)
		require.NoError(t, err)
		defer func() { _ = listener.Close() }()
		require.NoError(t, claim.Close())
		taken[port] = true
	}
	for range many {
		assert.False(t, taken[Free(t)])
	}
}
