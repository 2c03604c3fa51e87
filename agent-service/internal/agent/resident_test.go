// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

// kernels is a server of one file, and the step that names it as kernel and as initial RAM disk.
func kernels(t *testing.T, change func(*agentproto.BootArtifactsArgs)) api.Step {
	t.Helper()
	content := []byte("kernel")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(content)
	args := agentproto.BootArtifactsArgs{
		KernelURL: server.URL, InitrdURL: server.URL, KernelSHA256: hex.EncodeToString(sum[:]), InitrdSHA256: hex.EncodeToString(sum[:]), CommandLine: "quiet",
	}
	change(&args)
	return api.Step{StepType: api.StepTypeDownloadBootArtifacts, Args: []string{agentproto.Argument(args)}}
}

// loading is a machine that counts what it got ready.
type loading struct {
	Machine
	loaded int
}

// Load implements Machine.
func (l *loading) Load(ctx context.Context, wanted agentproto.BootArtifactsArgs) error {
	err := (&Generated{Client: http.DefaultClient}).Load(ctx, wanted)
	if err == nil {
		l.loaded++
	}
	return err
}

// Each case is an attempt to have something else started.
func TestNothingElseIsStarted(t *testing.T) {
	for name, c := range map[string]struct {
		discovery bool
		change    func(*agentproto.BootArtifactsArgs)
		says      string
	}{
		"what the service stated":       {change: func(*agentproto.BootArtifactsArgs) {}},
		"another kernel":                {change: func(a *agentproto.BootArtifactsArgs) { a.KernelSHA256 = a.KernelSHA256[1:] + "0" }, says: "checksum"},
		"another initial RAM disk":      {change: func(a *agentproto.BootArtifactsArgs) { a.InitrdSHA256 = "00" }, says: "checksum"},
		"a kernel without a checksum":   {change: func(a *agentproto.BootArtifactsArgs) { a.KernelSHA256 = "" }, says: "does not state"},
		"a RAM disk without a checksum": {change: func(a *agentproto.BootArtifactsArgs) { a.InitrdSHA256 = "" }, says: "does not state"},
		"a server that is away":         {change: func(a *agentproto.BootArtifactsArgs) { a.InitrdURL = "http://%zz" }, says: "URL"},
		"not on an installed system":    {discovery: true, change: func(*agentproto.BootArtifactsArgs) {}, says: "runs the discovery image"},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &loading{}
			a := New(Options{Machine: machine})
			a.resident = !c.discovery
			err := a.load(t.Context(), kernels(t, c.change))
			if c.says == "" {
				require.NoError(t, err)
				assert.Equal(t, 1, machine.loaded)
				return
			}
			require.ErrorContains(t, err, c.says)
			assert.Zero(t, machine.loaded)
		})
	}
}

// The kernel is not given what has another checksum.
func TestARealMachineLoadsNothingElse(t *testing.T) {
	step := kernels(t, func(a *agentproto.BootArtifactsArgs) { a.InitrdSHA256 = "00" })
	var wanted agentproto.BootArtifactsArgs
	require.NoError(t, arguments(step, &wanted))
	err := (&Real{Client: http.DefaultClient}).Load(t.Context(), wanted)
	require.ErrorContains(t, err, "downloading the initrd of the discovery image: its checksum is")
}

// A machine that restarts does not wait for the poll that is held meanwhile.
func TestARestartEndsThePollThatIsHeld(t *testing.T) {
	reboot := kernels(t, func(*agentproto.BootArtifactsArgs) {})
	reboot.StepType, reboot.StepID = api.StepTypeRebootForReclaim, "reboot-for-reclaim-1"
	polls, held := make(chan struct{}, 2), make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case polls <- struct{}{}:
		default:
		}
		if len(polls) == 1 {
			w.Header().Set("Content-Type", "application/json")
			assert.NoError(t, json.NewEncoder(w).Encode(api.Steps{NextInstructionSeconds: 1, Instructions: []api.Step{reboot}}))
			return
		}
		held <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	connection, err := NewConnection(server.URL, uuid.New(), "token", server.Client())
	require.NoError(t, err)
	a := New(Options{Connection: connection, Machine: &afterHeld{Generated: &Generated{Client: server.Client()}, held: held}, Log: zap.NewNop()})
	a.resident = true
	require.ErrorIs(t, a.serve(t.Context()), errDone)
}

// afterHeld is a machine that restarts once a poll is held.
type afterHeld struct {
	*Generated
	held <-chan struct{}
}

// Boot implements Machine.
func (m *afterHeld) Boot(ctx context.Context) error {
	select {
	case <-m.held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
