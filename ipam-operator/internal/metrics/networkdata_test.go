// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

func TestNetworkDataIsCountedOnce(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	n := NewNetworkData(registry)
	name := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	says := func(text string) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(text), "ipam_network_data_rendered", "ipam_network_data_waiting"))
	}

	n.Claims.Waits(name("a"), "TemplateNotFound")
	n.Data.Begins(name("a"), now)
	n.Data.Begins(name("b"), now)
	n.Data.Begins(name("failing"), now)
	n.Data.Waits(name("a"), "NotRenderable")
	n.Data.Waits(name("b"), allocate.WhyClusterNotFound)
	n.Data.Begins(name("b"), now.Add(time.Second))
	n.Rendered(name("known"), now)
	says(`
# HELP ipam_network_data_rendered Metal3Data whose Secrets are there.
# TYPE ipam_network_data_rendered gauge
ipam_network_data_rendered 1
# HELP ipam_network_data_waiting Metal3DataClaims without Metal3Data and Metal3Data without Secrets, by reason.
# TYPE ipam_network_data_waiting gauge
ipam_network_data_waiting{reason="ClusterNotFound"} 1
ipam_network_data_waiting{reason="NotRenderable"} 1
ipam_network_data_waiting{reason="TemplateNotFound"} 1
`)

	n.Rendered(name("b"), now.Add(3*time.Second))
	n.Rendered(name("b"), now.Add(9*time.Second))
	n.Data.Gone(name("a"))
	n.Claims.Gone(name("a"))
	says(`
# HELP ipam_network_data_rendered Metal3Data whose Secrets are there.
# TYPE ipam_network_data_rendered gauge
ipam_network_data_rendered 2
`)
	n.Data.Begins(name("b"), now.Add(20*time.Second))
	n.Rendered(name("b"), now.Add(21*time.Second))

	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "ipam_rendering_duration_seconds" {
			took := family.GetMetric()[0].GetHistogram()
			require.EqualValues(t, 2, took.GetSampleCount(), "data rendered before the operator started is not counted")
			require.InDelta(t, 3+1, took.GetSampleSum(), 0.001, "from the first look to the first time that it was there")
			return
		}
	}
	t.Fatal("the duration has no series")
}
