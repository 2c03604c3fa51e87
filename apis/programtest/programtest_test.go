// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package programtest_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/programtest"
)

func TestAProgramTellsHowItEndedAndWhatItPrinted(t *testing.T) {
	p := programtest.Start(t, exec.Command("sh", "-c", "echo out; echo err >&2; exit 3"))
	var exit *exec.ExitError
	require.ErrorAs(t, <-p.Ended(), &exit)
	assert.Equal(t, 3, exit.ExitCode())
	assert.Equal(t, "out\nerr\n", p.String())
	var none *programtest.Program
	assert.Nil(t, none.Ended())
}

func TestAProgramEndsWithItsTest(t *testing.T) {
	command := exec.Command("sleep", "600")
	t.Run("one that starts it", func(t *testing.T) { programtest.Start(t, command) })
	require.NotNil(t, command.ProcessState, "it has ended, and was waited for")
	assert.False(t, command.ProcessState.Success())
}

func TestAProgramThatIsKilledIsGone(t *testing.T) {
	p := programtest.Start(t, exec.CommandContext(t.Context(), "sleep", "600"))
	p.Kill()
	require.Error(t, <-p.Ended())
	p.Kill()
}
