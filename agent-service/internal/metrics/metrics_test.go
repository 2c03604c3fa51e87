// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/metrics"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
)

func TestHostsAreCountedByState(t *testing.T) {
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "agents.db"))
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the test is over
	svc := service.New(s, service.Options{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.New(svc, &s.Statements))
	e, err := svc.CreateInfraEnv(t.Context(), domain.Kubernetes, domain.NewInfraEnv{Name: "e"})
	require.NoError(t, err)
	_, err = svc.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: uuid.NewString()})
	require.NoError(t, err)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP agent_service_hosts_connected Hosts whose agent polled within the time-out.
# TYPE agent_service_hosts_connected gauge
agent_service_hosts_connected 1
# HELP agent_service_registrations_total Registrations of hosts, repeated ones too.
# TYPE agent_service_registrations_total counter
agent_service_registrations_total 1
# HELP agent_service_store_away 1 while the database cannot be reached.
# TYPE agent_service_store_away gauge
agent_service_store_away 0
`), "agent_service_hosts_connected", "agent_service_registrations_total", "agent_service_store_away"))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP agent_service_hosts_waiting_oldest_age_seconds How long the first of them has been in its state of that situation, 0 where there is none.
# TYPE agent_service_hosts_waiting_oldest_age_seconds gauge
agent_service_hosts_waiting_oldest_age_seconds{situation="installing"} 0
agent_service_hosts_waiting_oldest_age_seconds{situation="joining"} 0
agent_service_hosts_waiting_oldest_age_seconds{situation="releasing"} 0
`), "agent_service_hosts_waiting_oldest_age_seconds"))
}
