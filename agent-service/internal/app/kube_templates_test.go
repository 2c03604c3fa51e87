// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/join"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// withTemplate is withSystem for a system that joins by a template of docs/node-templates.md.
func withTemplate(t *testing.T, name string) func(*Options) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "docs", "templates", name))
	require.NoError(t, err)
	list, err := json.Marshal([]struct {
		agentproto.OSImage
		Template string `json:"firstBootTemplate"`
	}{{system(t, &atomic.Int64{}), path}})
	require.NoError(t, err)
	at := filepath.Join(t.TempDir(), "os.json")
	require.NoError(t, os.WriteFile(at, list, 0o600))
	return func(o *Options) { o.OSImages = at }
}

// files are those of the ignition that the machine got, by path.
func (i *installed) files(t *testing.T) map[string]string {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	var ignition struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	found := map[string]string{}
	if i.data == nil {
		return found
	}
	require.NoError(t, json.Unmarshal(i.data, &ignition))
	for _, file := range ignition.Storage.Files {
		content := []byte(file.Contents.Source)
		if encoded, inline := strings.CutPrefix(file.Contents.Source, "data:;base64,"); inline {
			var err error
			content, err = base64.StdEncoding.DecodeString(encoded)
			require.NoError(t, err)
		}
		found[file.Path] = string(content)
	}
	return found
}

// Machines of one cluster that install another system by a template join with a token each, and know none of the secrets of the other, of the cluster or of the service.
func TestATemplateGivesEachMachineItsOwnSecretsAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withTemplate(t, "coreos.ign.tmpl"))
	bootstrappers(c)
	infraEnv := c.infraEnv("rack")
	deployment, secret := c.takesNodes()
	got, tokens := map[string]map[string]string{}, map[string]string{}
	for number, name := range []string{worker(c.namespace), worker(c.namespace) + "-b"} {
		m := c.boot(infraEnv, number+1, 0)
		agent := c.agent(m)
		change(c, agent, func(a *agentv1.Agent) {
			a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, name, "worker"
		})
		require.Eventually(t, func() bool { got[name] = m.installed.files(t); return len(got[name]) > 0 }, kubePatience, 50*time.Millisecond, "there is no first-boot data")
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(got[name][join.BootstrapKubeconfigPath]))
		require.NoError(t, err)
		assert.Equal(t, "https://192.0.2.1:6443", config.Host)
		tokens[name] = config.BearerToken
	}
	require.Len(t, slices.Compact(slices.Sorted(maps.Values(tokens))), 2, "each has a token of its own")
	administrator, err := clientcmd.Load(secret.Data[hivev1.SecretKeyKubeconfig])
	require.NoError(t, err)
	for name, files := range got {
		everything := strings.Join(slices.Collect(maps.Values(files)), "\n")
		assert.Equal(t, name, strings.TrimSpace(files["/etc/hostname"]))
		assert.Contains(t, everything, tokens[name])
		for other, token := range tokens {
			assert.False(t, other != name && strings.Contains(everything, token), "%s has the token of %s", name, other)
		}
		for _, user := range administrator.AuthInfos {
			for _, credential := range []string{user.Token, string(user.ClientKeyData), base64.StdEncoding.EncodeToString(user.ClientKeyData)} {
				assert.False(t, credential != "" && strings.Contains(everything, credential), "%s has the node manager's credentials", name)
			}
		}
	}
}
