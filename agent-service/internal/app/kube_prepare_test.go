// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// holds is true where a condition of an AgentClusterInstall has a reason, and says something.
func holds(install *hiveextv1.AgentClusterInstall, kind, reason string, says ...string) bool {
	c := hivev1.FindCondition(install.Status.Conditions, kind)
	if c == nil || c.Reason != reason {
		return false
	}
	for _, part := range says {
		if !strings.Contains(c.Message, part) {
			return false
		}
	}
	return true
}

func TestAnInstallationThatCannotBeginSaysWhyAndWaitsForTheUserWhenItIsCancelled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	const image = "https://images.example.com/os.img"
	m.answers(func(context.Context) (any, error) {
		return map[string]any{"images": []map[string]string{{"name": image, "result": "failure"}}}, nil
	})
	deployment, install := c.deployment(func(spec *hiveextv1.AgentClusterInstallSpec) { spec.HoldInstallation = false })
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName, a.Spec.Approved = reference(deployment), true })
	const failed, why = "LastInstallationPreparationFailed", "The last installation preparation failed"
	hostname := m.Inventory().Hostname
	c.until(install, "the image and the host are named", func() bool { return holds(install, failed, why, image, hostname) })
	c.eventOf(install, corev1.EventTypeWarning, why, "", image)
	hang := make(chan struct{})
	m.answers(func(ctx context.Context) (any, error) {
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return nil, context.Canceled
	})
	defer close(hang)
	hold := func(yes bool) {
		change(c, install, func(i *hiveextv1.AgentClusterInstall) { i.Spec.HoldInstallation = yes })
	}
	prepares := func() bool { return install.Status.DebugInfo.State == "preparing-for-installation" }
	hold(true)
	c.until(install, "it is held", func() bool { return holds(install, hivev1.ClusterInstallCompleted, "InstallationOnHold") })
	hold(false)
	c.until(install, "it begins at once, since the spec has changed", prepares)
	status, _ := call(t, http.MethodPost, c.base+"/api/assisted-install/v2/clusters/"+string(deployment.UID)+"/actions/cancel", "")
	require.Equal(t, http.StatusAccepted, status)
	c.until(install, "it says what to do", func() bool {
		return holds(install, hivev1.ClusterInstallCompleted, "InstallationOnHold", "set holdInstallation to true and then to false")
	})
	_, cluster := call(t, http.MethodGet, c.base+"/api/assisted-install/v2/clusters/"+string(deployment.UID), "")
	assert.Equal(t, "ready", cluster["status"])
	hold(true)
	c.until(install, "it is held", func() bool { return holds(install, hivev1.ClusterInstallCompleted, "InstallationOnHold", "To unhold") })
	hold(false)
	c.until(install, "it begins when the user asks", prepares)
}
