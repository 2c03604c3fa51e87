// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/muster-io/muster/agent-service/api"
)

// wiping is a machine whose disk is being wiped until it is told to stop, and for a moment longer.
type wiping struct {
	*Generated
	begun, stopped, ends chan struct{}
}

func (w *wiping) Do(ctx context.Context, _ api.Step) (any, error) {
	close(w.begun)
	<-ctx.Done()
	close(w.stopped)
	<-w.ends
	return nil, ctx.Err()
}

// TestAnInstallationBeginsWhenTheWipeHasEnded: the Agent may be deleted, and the machine bound as a new host, while its disk is being wiped.
func TestAnInstallationBeginsWhenTheWipeHasEnded(t *testing.T) {
	stages := make(chan struct{}, 10)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stages <- struct{}{}
		w.WriteHeader(http.StatusConflict)
	}))
	t.Cleanup(service.Close)
	connection, err := NewConnection(service.URL, uuid.New(), "token", service.Client())
	require.NoError(t, err)
	m := &wiping{begun: make(chan struct{}), stopped: make(chan struct{}), ends: make(chan struct{})}
	a := New(Options{Connection: connection, Machine: m, Version: "test", Log: zaptest.NewLogger(t)})
	ctx, cancel := context.WithCancelCause(t.Context())
	var workers sync.WaitGroup
	a.start(ctx, &workers, []api.Step{{StepType: api.StepTypeWipeDisk, StepID: "1"}}, cancel)
	<-m.begun
	a.start(ctx, &workers, []api.Step{{StepType: api.StepTypeInstall, StepID: "2", Args: []string{"{}"}}}, cancel)
	<-m.stopped
	assert.Never(t, func() bool { return len(stages) > 0 }, 100*time.Millisecond, 10*time.Millisecond, "nothing is written beside a wipe")
	close(m.ends)
	<-stages
	cancel(nil)
	workers.Wait()
}
