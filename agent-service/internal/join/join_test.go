// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"

	"github.com/muster-io/muster/agent-service/internal/join"
)

const (
	ca     = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	secret = "zyxwvu.9876543210fedcba"
)

func values() join.Values {
	return join.Values{
		NodeName: "worker-1", NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, Server: "https://192.0.2.1:6443", CA: ca, Token: secret,
		ClusterDNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, ClusterDomain: "cluster.local", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		KubernetesVersion: "v1.37.2", Network: join.HostGateway, Labels: map[string]string{"tier": "web"}, Taints: []join.Taint{{Key: "dedicated", Effect: "NoSchedule"}},
	}
}

func TestValuesThatNoMachineCanJoinWithAreRefused(t *testing.T) {
	require.NoError(t, values().Validate())
	for says, change := range map[string]func(*join.Values){
		"nodeName \"Worker\" is not":        func(v *join.Values) { v.NodeName = "Worker" },
		"nodeName \"\" is not":              func(v *join.Values) { v.NodeName = "" },
		"https://host:port":                 func(v *join.Values) { v.Server = "http://192.0.2.1:6443" },
		"server is not a URL":               func(v *join.Values) { v.Server = "https://192.0.2.1:6443/path" },
		"ca holds no PEM certificate":       func(v *join.Values) { v.CA = "trust me" },
		"token is not a bootstrap token":    func(v *join.Values) { v.Token = "abcdef.short" },
		"kubernetesVersion \"1.37\" is not": func(v *join.Values) { v.KubernetesVersion = "1.37" },
		"neither host-gw nor none":          func(v *join.Values) { v.Network = "vxlan" },
		"network host-gw needs podCIDRs":    func(v *join.Values) { v.PodCIDRs = nil },
		"two addresses of one family":       func(v *join.Values) { v.NodeIPs = append(v.NodeIPs, netip.MustParseAddr("192.0.2.8")) },
	} {
		v := values()
		change(&v)
		assert.ErrorContains(t, v.Validate(), says)
	}
}

func TestARecordIsReadAsWritten(t *testing.T) {
	text, err := json.Marshal(values())
	require.NoError(t, err)
	read, err := join.Read(text)
	require.NoError(t, err)
	assert.Equal(t, values(), read)
}

func TestNoErrorQuotesTheToken(t *testing.T) {
	_, err := join.Read([]byte(`{"token": "` + secret + `", "nodeIPs": "` + secret + `"}`))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), secret)
	v := values()
	v.Token += secret
	require.Error(t, v.Validate())
	assert.NotContains(t, v.Validate().Error(), secret)
}

// Templates write the name into scripts.
func TestTheNameOfTheServerIsOne(t *testing.T) {
	v := values()
	for _, name := range []string{"", "kubernetes", "API.blue.example.com", "192.0.2.1", "2001:db8::1"} {
		v.TLSServerName = name
		require.NoError(t, v.Validate(), name)
	}
	for _, name := range []string{"a b", "a/'; reboot; '", "a\nb", strings.Repeat("a", 254)} {
		v.TLSServerName = name
		require.ErrorContains(t, v.Validate(), "tls-server-name is not a DNS name", name)
	}
}

func TestTheKubeletVerifiesTheServerAndIsVerified(t *testing.T) {
	v := values()
	v.TLSServerName = "kubernetes"
	var kubeconfig struct {
		Clusters []struct {
			Cluster struct {
				Server   string `json:"server"`
				CA       []byte `json:"certificate-authority-data"`
				Name     string `json:"tls-server-name"`
				Insecure bool   `json:"insecure-skip-tls-verify"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	require.NoError(t, json.Unmarshal([]byte(v.BootstrapKubeconfig()), &kubeconfig))
	require.Len(t, kubeconfig.Clusters, 1)
	cluster := kubeconfig.Clusters[0].Cluster
	assert.Equal(t, v.Server, cluster.Server)
	assert.Equal(t, ca, string(cluster.CA))
	assert.Equal(t, "kubernetes", cluster.Name)
	assert.False(t, cluster.Insecure)

	settings := v.KubeletConfigurationWith(map[string]any{"failSwapOn": false, "serverTLSBootstrap": false})
	assert.JSONEq(t, `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","failSwapOn":false,
		"authentication":{"anonymous":{"enabled":false},"webhook":{"enabled":true},"x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"}},"authorization":{"mode":"Webhook"},
		"rotateCertificates":true,"serverTLSBootstrap":true,"clusterDNS":["10.96.0.10"],"clusterDomain":"cluster.local","registerWithTaints":[{"key":"dedicated","effect":"NoSchedule"}]}`, settings)
	assert.NotContains(t, settings, secret)
}

// Templates of other operating systems use the same values.
func TestATemplateUsesTheValues(t *testing.T) {
	var out strings.Builder
	text := template.Must(template.New("").Parse(`{{.Join.NodeName}} {{range .Join.NodeIPs}}{{.}}{{end}} {{len .Join.BootstrapKubeconfig}} {{len .Join.KubeletConfiguration}}`))
	require.NoError(t, text.Execute(&out, map[string]any{"Join": values()}))
	assert.Regexp(t, `^worker-1 192\.0\.2\.7 \d+ \d+$`, out.String())
}

// The page has each value by both of its names.
func TestEveryValueIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/node-image.md")
	require.NoError(t, err)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[join.Values]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		assert.Contains(t, string(page), "`.Join."+field.Name+"`")
		assert.Contains(t, string(page), "`"+name+"`")
	}
}

func TestNetworksAreThoseOfNodeAccess(t *testing.T) {
	assert.Equal(t, hivev1.NodeNetworkHostGateway, join.HostGateway)
	assert.Equal(t, hivev1.NodeNetworkNone, join.None)
}
