// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// A machine whose firmware tries the network first asks the service what to boot, as iPXE does: the discovery image while it is free, its disk once that is
// written, and the image again after it was freed.
func TestAMachineThatBootsFromTheNetworkAsksWhetherItBootsItsDisk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	infraEnv := c.infraEnv("rack", func(spec *agentv1.InfraEnvSpec) { spec.IPXEScriptType = "BootOrderControl" })
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	c.until(agent, "the Agent has an inventory", func() bool { return len(agent.Status.Inventory.Interfaces) > 0 })
	mac := strings.ToUpper(agent.Status.Inventory.Interfaces[0].MacAddress)

	// chain follows the scripts as iPXE does, and returns the last one.
	chain := func(mac string) string {
		_, script := get(t, infraEnv.Status.BootArtifacts.IpxeScriptURL)
		for range 3 {
			address, found := strings.CutPrefix(strings.TrimSpace(string(script)), "#!ipxe\nchain ")
			if !found {
				break
			}
			answer, next := get(t, strings.Replace(address, "${netX/mac}", mac, 1))
			require.Equal(t, http.StatusOK, answer.StatusCode, address)
			script = next
		}
		return string(script)
	}
	assert.Contains(t, chain(mac), "\nkernel ", "a free machine boots the discovery image")
	assert.Contains(t, chain("52:54:00:ff:ff:ff"), "\nkernel ", "and so does a new one")

	deployment, _ := c.takesNodes()
	change(c, agent, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, "boots-disk", "worker"
	})
	require.Eventually(t, func() bool { return chain(mac) == bootDisk }, kubePatience, 50*time.Millisecond, "an installed machine boots its disk")
	assert.Contains(t, chain("52:54:00:ff:ff:ff"), "\nkernel ", "others do not")

	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	require.Eventually(t, func() bool { return strings.Contains(chain(mac), "\nkernel ") }, kubePatience, 50*time.Millisecond, "a machine that was freed boots the discovery image")

	// A machine whose firmware says no MAC is not sent round in circles.
	assert.Contains(t, chain(""), "\nkernel ")
	answer, _ := get(t, c.base+bootOrderPath+"forged/ipxe-script?mac="+mac)
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
}
