// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package firstboot_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/firstboot"
	"github.com/muster-io/muster/agent-service/internal/join"
)

func TestOwnTemplatesRenderWhatSystemsRead(t *testing.T) {
	odd := "a\"b\\c'd\n%e"
	for name, values := range map[string]firstboot.Values{
		"nothing": {},
		"everything": {
			Hostname: odd, Role: odd, HostID: odd, InfraEnvID: odd, ClusterID: odd, ClusterName: odd, BaseDomain: odd, SSHKey: odd, BaseURL: "https://muster.example.com", Token: "t",
			Trusted: odd, Proxy: domain.Proxy{HTTP: "http://p:1", HTTPS: "http://p:2", NoProxy: ".local"}, PullSecret: odd, Overrides: firstboot.DataURL("{}"),
			Manifests: map[string]string{"manifests/a.yaml": odd, "manifests/b.yaml": odd}, Networks: map[string]string{"eth0.nmconnection": odd, "eth1.nmconnection": odd},
			Join:         &join.Values{NodeName: odd, CA: odd, Token: odd, Labels: map[string]string{odd: odd}},
			ControlPlane: &join.ControlPlane{Cluster: odd, CAKey: odd, Objects: odd},
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, contentType, err := firstboot.Render(agentproto.OSImage{}, values)
			require.NoError(t, err)
			assert.Equal(t, "application/vnd.coreos.ignition+json", contentType)
			assert.True(t, json.Valid(data), string(data))
			assert.Equal(t, values.Join != nil, strings.Contains(string(data), join.Path))
			assert.Equal(t, values.ControlPlane != nil, strings.Contains(string(data), join.ControlPlanePath))

			data, contentType, err = firstboot.Render(agentproto.OSImage{FirstBoot: firstboot.CloudInit}, values)
			require.NoError(t, err)
			assert.Equal(t, "text/cloud-config", contentType)
			var config map[string]any
			require.NoError(t, yaml.UnmarshalStrict(data, &config), string(data))
			assert.Equal(t, values.Hostname, config["hostname"])
			assert.Equal(t, values.ControlPlane != nil, strings.Contains(string(data), join.ControlPlanePath))
		})
	}
}

// TestEachKeyOfAClusterIsOne: cloud-init takes what comes after the first key of a text for a comment on it.
func TestEachKeyOfAClusterIsOne(t *testing.T) {
	for text, keys := range map[string][]string{
		"":                            {},
		"ssh-ed25519 AAAA jane\n":     {"ssh-ed25519 AAAA jane"},
		"ssh-ed25519 A\nssh-rsa B":    {"ssh-ed25519 A", "ssh-rsa B"},
		" ssh-rsa A\r\n\r\nssh-rsa B": {"ssh-rsa A", "ssh-rsa B"},
	} {
		var ignition struct {
			Passwd struct {
				Users []struct{ SSHAuthorizedKeys []string }
			}
		}
		data, _, err := firstboot.Render(agentproto.OSImage{}, firstboot.Values{SSHKey: text})
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &ignition), string(data))
		require.Len(t, ignition.Passwd.Users, 1)
		assert.Equal(t, keys, ignition.Passwd.Users[0].SSHAuthorizedKeys, "%q", text)

		var config struct {
			Keys []string `json:"ssh_authorized_keys"`
		}
		data, _, err = firstboot.Render(agentproto.OSImage{FirstBoot: firstboot.CloudInit}, firstboot.Values{SSHKey: text})
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(data, &config), string(data))
		assert.Equal(t, keys, config.Keys, "%q", text)
	}
}

func TestATemplateOfAnImageTakesTheirPlace(t *testing.T) {
	data, _, err := firstboot.Render(agentproto.OSImage{Template: "{{.Hostname}} of {{.ClusterName}}"}, firstboot.Values{Hostname: "n1", ClusterName: "c"})
	require.NoError(t, err)
	assert.Equal(t, "n1 of c", string(data))
	require.Error(t, firstboot.CheckTemplate("{{"))
	_, _, err = firstboot.Render(agentproto.OSImage{Template: "{{.Nothing}}"}, firstboot.Values{})
	require.Error(t, err)
}
