// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

func TestACompletionThatIsMissingNamesTheControlPlanes(t *testing.T) {
	plane := &domain.ControlPlane{}
	seen := &snapshot{install: &hiveextv1.AgentClusterInstall{}, cluster: &domain.Cluster{Status: lifecycle.ClusterFinalizing, StatusInfo: "Finalizing", ControlPlane: plane}}
	for _, name := range []string{"a", "b", "c", "worker"} {
		h := domain.Host{HostKey: domain.HostKey{HostID: name}}
		h.RequestedHostname = name
		if name != "worker" {
			plane.Members = append(plane.Members, domain.ControlPlaneMember{Host: h.HostKey})
		}
		h.Node.Ready = name == "a"
		seen.hosts = append(seen.hosts, h)
	}
	assert.Equal(t, "The installation is in progress: Finalizing: the API of the cluster does not say yet that these nodes are Ready: b (control plane), c (control plane), worker", completed(seen).Message)
}
