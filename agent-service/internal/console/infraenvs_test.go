// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheFormOfInfraEnvsSaysAllThatMachinesNeed: what a person fills in is what the API has.
func TestTheFormOfInfraEnvsSaysAllThatMachinesNeed(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	b := s.open(chromium, t, admin)
	b.visit("/infra-envs/new")
	ask[any](b, `document.querySelector("#more").open = true; null`)
	for field, value := range map[string]string{
		"name": "rack-w", "pull_secret": `{"auths":{}}`, "http_proxy": "http://proxy.example.com:3128", "no_proxy": "10.0.0.0/8", "kernel_arguments": "console=ttyS0 quiet",
		"static_networks": `[{"network_yaml":"interfaces: []","mac_interface_map":[{"mac_address":"52:54:00:00:00:07","logical_nic_name":"eth0"}]}]`,
	} {
		b.run(chromedp.SendKeys(chromedp.CSS("#"+field), value))
	}
	b.set("#wipe", "InstalledDisk")
	b.looksFine("infraenv-form-filled")
	b.press("Create")
	b.sees("h1", "rack-w")
	b.sees("dl", "disks that were installed to are erased")
	var made struct {
		Proxy struct {
			HTTP    string `json:"http_proxy"`
			NoProxy string `json:"no_proxy"`
		}
		Kernel    string                `json:"kernel_arguments"`
		Networks  string                `json:"static_network_config"`
		OnRelease struct{ Wipe string } `json:"on_release"`
	}
	env := b.id()
	require.NoError(t, json.Unmarshal(s.call("Authorization", "Bearer "+admin, "GET", "/infra-envs/"+env, nil), &made))
	assert.Equal(t, "InstalledDisk", made.OnRelease.Wipe)
	assert.Equal(t, "http://proxy.example.com:3128", made.Proxy.HTTP)
	assert.Equal(t, "10.0.0.0/8", made.Proxy.NoProxy)
	assert.Contains(t, made.Kernel, "console=ttyS0")
	assert.Contains(t, made.Networks, "52:54:00:00:00:07")

	// The policy is changed later, and nothing else is.
	ask[any](b, `document.querySelector("#wipe-policy").open = true; null`)
	b.looksFine("infraenv-wipe")
	b.set("#wipe", "AllDisks")
	b.press("Change")
	b.sees(".notice.ok", "treated so")
	b.sees("dl", "all disks that can be installed to are erased")
	before := made
	require.NoError(t, json.Unmarshal(s.call("Authorization", "Bearer "+admin, "GET", "/infra-envs/"+env, nil), &made))
	assert.Equal(t, "AllDisks", made.OnRelease.Wipe)
	before.OnRelease = made.OnRelease
	assert.Equal(t, before, made)

	// Tokens are rotated: those of images that were downloaded before have ended.
	old := s.imageToken(admin, env)
	ask[any](b, `document.querySelector("#rotate").open = true; null`)
	b.looksFine("infraenv-rotate")
	b.press("Rotate tokens of images")
	b.sees(".notice.ok", "The tokens of images were rotated")
	assert.NotEqual(t, old, s.imageToken(admin, env))
	ask[any](b, `document.querySelector("#rotate").open = true; null`)
	b.press("Rotate tokens of machines")
	b.sees(".notice.ok", "The tokens of machines were rotated")
}
