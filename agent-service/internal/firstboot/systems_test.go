// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package firstboot_test

import (
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ignitionv3 "github.com/coreos/ignition/v2/config/v3_3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/firstboot"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/apis/needtest"
)

// templates are those of docs/node-templates.md.
var templates = []string{"coreos.ign.tmpl", "flatcar.ign.tmpl", "ubuntu.cloud-config.tmpl"}

// file is one that a system finds when it has booted first.
type file struct {
	content string
	private bool
}

// configured is what first-boot data makes of a system: its files and, by name, its units.
type configured struct {
	files map[string]file
	units map[string]string
}

func render(t *testing.T, name string, values firstboot.Values) ([]byte, configured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "templates", name))
	require.NoError(t, err)
	image := agentproto.OSImage{Template: string(text)}
	read := ofIgnition
	if strings.Contains(name, firstboot.CloudInit[:5]) {
		image.FirstBoot, read = firstboot.CloudInit, ofCloudInit
	}
	data, _, err := firstboot.Render(image, values)
	require.NoError(t, err)
	return data, read(t, data)
}

// ofIgnition reads with ignition's own parser, which finds nothing to remark.
func ofIgnition(t *testing.T, data []byte) configured {
	t.Helper()
	config, report, err := ignitionv3.Parse(data)
	require.NoError(t, err, "%s\n%s", report.String(), data)
	require.Empty(t, report.Entries, report.String())
	system := configured{files: map[string]file{}, units: map[string]string{}}
	for _, f := range config.Storage.Files {
		encoded, inline := strings.CutPrefix(*f.Contents.Source, "data:;base64,")
		content := []byte(*f.Contents.Source)
		if inline {
			content, err = base64.StdEncoding.DecodeString(encoded)
			require.NoError(t, err)
		}
		system.files[f.Path] = file{string(content), *f.Mode&0o077 == 0}
	}
	for _, unit := range config.Systemd.Units {
		require.True(t, *unit.Enabled, unit.Name)
		if unit.Contents != nil {
			system.units[unit.Name] = *unit.Contents
		}
	}
	return system
}

func ofCloudInit(t *testing.T, data []byte) configured {
	t.Helper()
	require.True(t, strings.HasPrefix(string(data), "#cloud-config\n"), "%s", data)
	var config struct {
		Files []struct {
			Path, Permissions, Content string
		} `json:"write_files"`
	}
	require.NoError(t, yaml.Unmarshal(data, &config), "%s", data)
	system := configured{files: map[string]file{}, units: map[string]string{}}
	for _, f := range config.Files {
		if unit, is := strings.CutPrefix(f.Path, "/etc/systemd/system/"); is {
			system.units[unit] = f.Content
			continue
		}
		system.files[f.Path] = file{f.Content, f.Permissions == "0600"}
	}
	return system
}

// joining are the values of a host that joins a cluster.
func joining() firstboot.Values {
	return firstboot.Values{
		Hostname: "worker-1", HostID: "h", InfraEnvID: "e", ClusterID: "c", ClusterName: "blue", SSHKey: "ssh-ed25519 AAAA", BaseURL: "https://muster.example.com", Token: "token-of-the-host",
		Trusted: "-----BEGIN CERTIFICATE-----\nTRUST\n-----END CERTIFICATE-----\n", PullSecret: `{"auths":{"quay.io":{"auth":"cHVsbA=="}}}`,
		Join: &join.Values{
			NodeName: "worker-1", NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")}, Server: "https://192.0.2.1:6443", TLSServerName: "kubernetes",
			CA: "-----BEGIN CERTIFICATE-----\nCLUSTER\n-----END CERTIFICATE-----\n", Token: "abcdef.0123456789abcdef", ClusterDNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
			ClusterDomain: "cluster.local", KubernetesVersion: "v1.37.2", Network: join.None,
			Labels: map[string]string{"tier": "web", "rack": "a"}, Taints: []join.Taint{{Key: "tier", Effect: "NoSchedule"}},
		},
	}
}

func TestOtherSystemsJoinByTheirTemplates(t *testing.T) {
	for _, name := range templates {
		t.Run(name, func(t *testing.T) {
			values := joining()
			_, system := render(t, name, values)
			assert.Equal(t, file{values.Join.CA, false}, system.files[join.CAPath])
			assert.Equal(t, file{values.Join.BootstrapKubeconfig(), true}, system.files[join.BootstrapKubeconfigPath])
			assert.Equal(t, file{values.Join.KubeletConfiguration(), true}, system.files[join.KubeletConfigurationPath])
			assert.Equal(t, file{values.PullSecret, true}, system.files["/var/lib/kubelet/config.json"])
			config, err := clientcmd.RESTConfigFromKubeConfig([]byte(system.files[join.BootstrapKubeconfigPath].content))
			require.NoError(t, err)
			assert.Equal(t, values.Join.Server, config.Host)
			assert.Equal(t, values.Join.Token, config.BearerToken)
			assert.Equal(t, "kubernetes", config.ServerName)
			var host map[string]string
			require.NoError(t, json.Unmarshal([]byte(system.files["/etc/muster/host.json"].content), &host))
			assert.Equal(t, values.Token, host["token"])
			assert.True(t, system.files["/etc/muster/host.json"].private)

			kubelet := system.units["kubelet.service"]
			for _, flag := range []string{
				"/kubelet --config=" + join.KubeletConfigurationPath + " ", " --bootstrap-kubeconfig=" + join.BootstrapKubeconfigPath + " ", " --kubeconfig=" + join.KubeconfigPath + " ",
				" --hostname-override=worker-1 ", " --node-ip=192.0.2.11,2001:db8::11 ", " --node-labels=rack=a,tier=web\n",
			} {
				assert.Contains(t, kubelet, flag)
			}
			assert.Contains(t, system.units["kube-proxy.service"], " --hostname-override=worker-1\n")
			assert.Contains(t, system.units["muster-joined.service"], "ExecStart=/bin/sh /etc/muster/joined.sh\n")
			joined := system.files["/etc/muster/joined.sh"].content
			waits := "until [ -s " + join.ClientCertificatePath + " ]; do sleep 2; done"
			assert.Contains(t, system.units["kube-proxy.service"], waits)
			assert.True(t, strings.HasPrefix(joined, waits+"\nrm -f "+join.BootstrapKubeconfigPath), "a kubelet that starts again before it has a certificate needs the token")
			assert.Contains(t, joined, "/api/assisted-install/v2/infra-envs/e/hosts/h/progress")
		})
	}
}

// The kubelet leaves tls-server-name out of the kubeconfig that it makes of its bootstrap kubeconfig, and that it and kube-proxy start with.
func TestOtherSystemsVerifyTheServerForItsName(t *testing.T) {
	const script = "/etc/muster/server-name.sh"
	for _, name := range templates {
		t.Run(name, func(t *testing.T) {
			values := joining()
			values.Join.TLSServerName = "api.blue.example.com"
			_, system := render(t, name, values)
			for _, unit := range []string{"kubelet.service", "kube-proxy.service"} {
				assert.Regexp(t, `(?m)^ExecStartPre=/bin/sh `+script+`\nExecStart=`, system.units[unit], unit)
			}
			path := filepath.Join(t.TempDir(), "kubelet.conf")
			mends := func() {
				out, err := exec.CommandContext(t.Context(), "/bin/sh", "-ec", strings.ReplaceAll(system.files[script].content, join.KubeconfigPath, path)).CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			mends()
			assert.NoFileExists(t, path, "the kubelet has not asked yet")
			require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
				Clusters:       map[string]*clientcmdapi.Cluster{"default-cluster": {Server: values.Join.Server, CertificateAuthorityData: []byte(values.Join.CA)}},
				Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster"}},
				CurrentContext: "default-context",
			}, path))
			for range 2 {
				mends()
				config, err := clientcmd.BuildConfigFromFlags("", path)
				require.NoError(t, err)
				assert.Equal(t, values.Join.TLSServerName, config.ServerName)
				assert.Equal(t, values.Join.Server, config.Host)
				assert.Equal(t, values.Join.CA, string(config.CAData))
			}
			values.Join.TLSServerName = ""
			_, system = render(t, name, values)
			assert.NotContains(t, system.files, script)
			assert.NotContains(t, system.units["kubelet.service"], script)
		})
	}
}

// A value that is not stated leaves nothing behind that a system stumbles over.
func TestTemplatesNeedNoMoreThanAClusterHas(t *testing.T) {
	for _, name := range templates {
		t.Run(name, func(t *testing.T) {
			values := joining()
			values.SSHKey, values.Trusted, values.PullSecret, values.Join.NodeIPs, values.Join.Labels, values.Join.Taints = "", "", "", nil, nil, nil
			values.Join.TLSServerName, values.Join.ClusterDNS = "", nil
			_, system := render(t, name, values)
			assert.Contains(t, system.units["kubelet.service"], " --hostname-override=worker-1\nRestart=always\n")
			assert.NotContains(t, system.files, "/var/lib/kubelet/config.json")
		})
	}
}

// The token of the host and its bootstrap token are in files and units that users of the system do not read. Neither is in what is not needed, and values are quoted wherever they stand.
func TestTemplatesGiveSecretsToRootAlone(t *testing.T) {
	for _, name := range templates {
		t.Run(name, func(t *testing.T) {
			values := joining()
			values.Overrides, values.ClusterName, values.BaseDomain = firstboot.DataURL("{}"), "a\"b\\c", "a\"b\\c\nd: e"
			_, system := render(t, name, values)
			for path, f := range system.files {
				for _, secret := range []string{values.Token, values.Join.Token, "cHVsbA=="} {
					assert.False(t, strings.Contains(f.content, secret) && !f.private, "%s is for all users of the system", path)
				}
			}
			for unit, content := range system.units {
				assert.NotContains(t, content, values.Join.Token, unit)
				assert.NotContains(t, content, values.Token, unit)
			}
		})
	}
}

// cloud-init's own schema has nothing to remark.
func TestTheTemplateOfUbuntuIsWhatCloudInitReads(t *testing.T) {
	program, err := exec.LookPath("cloud-init")
	needtest.Part(t, err == nil, "cloud-init is not installed (apt-get install cloud-init): its schema is not asked")
	values := joining()
	values.Proxy = domain.Proxy{HTTP: "http://p:1"}
	data, _ := render(t, "ubuntu.cloud-config.tmpl", values)
	path := filepath.Join(t.TempDir(), "user-data")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	said, err := exec.CommandContext(t.Context(), program, "schema", "--config-file", path).CombinedOutput()
	require.NoError(t, err, "%s\n%s", said, data)
	assert.Contains(t, string(said), "Valid")
}
