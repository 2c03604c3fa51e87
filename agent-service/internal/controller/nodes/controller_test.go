// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/workload"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// service answers with pages, as the real one does.
type service struct {
	Service
	hosts []domain.Host
}

func (s *service) ListHosts(_ context.Context, _ domain.Principal, filter domain.HostFilter) (domain.List[domain.Host], error) {
	page := s.hosts[min(filter.Offset, len(s.hosts)):]
	return domain.List[domain.Host]{Items: page[:min(len(page), cmp.Or(filter.Limit, 1000))], Total: len(s.hosts)}, nil
}

// A host that the Watcher is not told of gets no certificate.
func TestAllHostsOfALargeClusterAreLookedAfter(t *testing.T) {
	const number = 1500
	known := &service{}
	for i := range number {
		h := domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: fmt.Sprintf("host-%d", i)}, ClusterID: "c", State: lifecycle.AddedToExistingCluster}
		known.hosts = append(known.hosts, h)
	}
	tokens, err := workload.NewTokens([]byte("secret"))
	require.NoError(t, err)
	r := New(t.Context(), Deps{Service: known, Tokens: tokens})
	machines, hosts, err := r.machines(t.Context(), &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "c"}})
	require.NoError(t, err)
	assert.Equal(t, []int{number, number}, []int{len(machines), len(hosts)})
}
