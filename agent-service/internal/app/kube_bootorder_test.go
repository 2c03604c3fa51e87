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

	// file is what REST answers to a request for the script, and presigned is the script behind the address that it hands out.
	rest := c.base + "/api/assisted-install/v2/infra-envs/" + string(infraEnv.UID) + "/downloads/files"
	file := func(query string) string {
		t.Helper()
		answer, script := get(t, rest+"?file_name=ipxe-script"+query)
		require.Equal(t, http.StatusOK, answer.StatusCode, string(script))
		return string(script)
	}
	presigned := func(query string) string {
		t.Helper()
		code, answer := call(t, http.MethodGet, rest+"-presigned?file_name=ipxe-script"+query, "")
		require.Equal(t, http.StatusOK, code, answer)
		address, _ := answer["url"].(string)
		_, script := get(t, address)
		return string(script)
	}
	const control, always = "&ipxe_script_type=boot-order-control", "&ipxe_script_type=discovery-image-always"
	boots := func(name, script string, disk bool) {
		t.Helper()
		if disk {
			assert.Equal(t, bootDisk, script, name)
		} else {
			assert.Regexp(t, `^#!ipxe\nchain http://\S+/images/\S+/ipxe-script\n$`, script, name)
		}
	}
	scripts := func(disk bool) {
		t.Helper()
		boots("boot order control", file(control+"&mac="+mac), disk)
		boots("no type", file("&mac="+mac), disk)
		boots("another machine", file(control+"&mac=52:54:00:ff:ff:ff"), false)
		for _, script := range []string{file(""), file(always + "&mac=" + mac), presigned(""), presigned(always)} {
			assert.Contains(t, script, "\nkernel ")
		}
		for _, script := range []string{file(control), presigned(control)} {
			assert.Regexp(t, `^#!ipxe\nchain http://\S+`+bootOrderPath+`\S+/ipxe-script\?mac=\$\{netX/mac\}\n$`, script)
		}
	}
	scripts(false)

	deployment, _ := c.takesNodes()
	change(c, agent, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, "boots-disk", "worker"
	})
	require.Eventually(t, func() bool { return chain(mac) == bootDisk }, kubePatience, 50*time.Millisecond, "an installed machine boots its disk")
	assert.Contains(t, chain("52:54:00:ff:ff:ff"), "\nkernel ", "others do not")
	scripts(true)

	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	require.Eventually(t, func() bool { return strings.Contains(chain(mac), "\nkernel ") }, kubePatience, 50*time.Millisecond, "a machine that was freed boots the discovery image")
	scripts(false)

	// A machine whose firmware says no MAC is not sent round in circles.
	assert.Contains(t, chain(""), "\nkernel ")
	answer, _ := get(t, c.base+bootOrderPath+"forged/ipxe-script?mac="+mac)
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
}
