// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/service"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

func TestTheVersionOfAReleaseImage(t *testing.T) {
	known := []string{"4.1", "4.18", "4.18.3", "45.20251103.3.0"}
	for image, want := range map[string]string{
		"quay.io/openshift-release-dev/ocp-release:4.18.3-x86_64":       "4.18.3",
		"quay.io/openshift-release-dev/ocp-release:4.18.30-x86_64":      "4.18",
		"registry.example.org:5000/release:4.18.0-rc.1-multi":           "4.18",
		"registry.example.org:5000/release:4.19.1-aarch64":              "4.19.1",
		"registry.example.org/release@sha256:0123":                      "",
		"registry.example.org/release:45.20251103.3.0@sha256:0123abcde": "45.20251103.3.0",
	} {
		assert.Equal(t, want, version(image, known), image)
	}
}

func TestHostsWithoutARoleFillTheControlPlane(t *testing.T) {
	seen := &snapshot{install: &hiveextv1.AgentClusterInstall{Spec: hiveextv1.AgentClusterInstallSpec{
		ProvisionRequirements: hiveextv1.ProvisionRequirements{ControlPlaneAgents: 2, WorkerAgents: 1},
	}}}
	host := func(role string, state lifecycle.State, approved bool, percentage int) service.Host {
		return service.Host{State: state, Progress: service.Progress{Percentage: percentage}, HostSettings: service.HostSettings{Role: role, Approved: approved}}
	}
	seen.hosts = []service.Host{
		host("worker", lifecycle.Known, true, 10), host("auto-assign", lifecycle.Insufficient, true, 20), host("auto-assign", lifecycle.Known, false, 30), host("master", lifecycle.Known, true, 40),
	}
	assert.Equal(t, counts{controlPlane: 2, controlPlaneReady: 1, workers: 2, workersReady: 2, unapproved: 1, percentage: 25}, count(seen))
}
