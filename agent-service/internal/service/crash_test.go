// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

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

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// crashEnvironment is the database of the process that is to be killed.
const crashEnvironment = "MUSTER_TEST_CRASH_DATABASE"

// TestKilledProcess is not a test: it is the process that TestKillingTheServiceLeavesNothingHalfDone kills. It binds,
// moves and frees hosts for ever, and says each time which step it has finished.
func TestKilledProcess(t *testing.T) {
	path := os.Getenv(crashEnvironment)
	if path == "" {
		t.Skip("only for TestKillingTheServiceLeavesNothingHalfDone")
	}
	db, err := store.Open(t.Context(), path)
	require.NoError(t, err)
	w := &testEnv{t: t, store: db, now: time.Now()}
	w.Service = service.New(db, service.Options{})
	service.Tick(t.Context(), w.Service)
	e, one, two := w.infraEnv(alice), w.cluster(alice), w.cluster(alice)
	for i := 0; ; i++ {
		key := w.register(e, fmt.Sprintf("n%d", i))
		fmt.Println("did register")
		_, err = w.BindHost(t.Context(), alice, key, one.ID, false)
		require.NoError(t, err)
		fmt.Println("did bind")
		_, err = w.MoveHost(t.Context(), alice, key, two.ID)
		require.NoError(t, err)
		fmt.Println("did move")
		if i%2 == 0 {
			_, err = w.UnbindHost(t.Context(), alice, key)
			require.NoError(t, err)
			fmt.Println("did unbind")
		}
	}
}

func TestKillingTheServiceLeavesNothingHalfDone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agents.db")
	for n := 1; n <= 12; n++ {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$", "-test.v")
		command.Env = append(os.Environ(), crashEnvironment+"="+path)
		out, err := command.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, command.Start())
		lines := bufio.NewScanner(out)
		done := 0
		for done < n && lines.Scan() {
			if strings.HasPrefix(lines.Text(), "did ") {
				done++
			}
		}
		require.Equal(t, n, done, "the process ended before it was killed")
		require.NoError(t, command.Process.Kill()) // in the middle of what comes next
		_ = command.Wait()
		hosts := consistent(t, path)
		require.GreaterOrEqual(t, hosts, n, "each process registered a host at least")
	}
}

// consistent says that hosts, clusters and events tell the same story, and how many hosts there are.
func consistent(t *testing.T, path string) (found int) {
	t.Helper()
	db, err := store.Open(t.Context(), path)
	require.NoError(t, err)
	defer db.Close() //nolint:errcheck // it was only read
	require.NoError(t, db.View(t.Context(), func(ctx context.Context, r transaction.Reader) error {
		all := domain.Scope{Principal: admin}
		hosts, err := r.Hosts(ctx, all, domain.HostFilter{Page: domain.Page{Limit: 5000}})
		require.NoError(t, err)
		found = hosts.Total
		members := map[string]int{}
		for _, h := range hosts.Items {
			assert.Equal(t, lifecycle.Unbound(h.State), h.ClusterID == "", h.State)
			members[h.ClusterID]++
			events, err := r.Events(ctx, domain.EventFilter{InfraEnvID: h.InfraEnvID, HostIDs: []string{h.HostID}})
			require.NoError(t, err)
			bindings := map[string]int{}
			for _, e := range events.Items {
				bindings[e.Name] += int(e.Count)
			}
			assert.Equal(t, 1, bindings["host_registration_succeeded"])
			if h.ClusterID != "" {
				assert.Positive(t, bindings["host_bind_succeeded"], "the binding has an event")
			}
		}
		clusters, err := r.Clusters(ctx, all, domain.ClusterFilter{})
		require.NoError(t, err)
		for _, c := range clusters.Items {
			assert.Equal(t, members[c.ID], c.HostCount, "the cluster counts its hosts")
		}
		return nil
	}))
	return found
}
