// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// certificate is one in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{SerialNumber: big.NewInt(1)}, &key.PublicKey, key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func network(yaml string) json.RawMessage {
	config, err := json.Marshal([]map[string]string{{"network_yaml": yaml}})
	if err != nil {
		panic(err)
	}
	return config
}

func argument(value string) []domain.KernelArgument {
	return []domain.KernelArgument{{Operation: "append", Value: value}}
}

func TestSettingsOfAnInfraEnvThatNoMachineCouldBootWithAreRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	trusted := certificate(t)
	for what, c := range map[string]struct {
		change func(*domain.InfraEnvSettings)
		reason string
	}{
		"a line of the boot loader in a kernel argument": {func(s *domain.InfraEnvSettings) { s.KernelArguments = argument("\"a\nset x=1\nb\"") }, "KernelArgumentsInvalid"},
		"a kernel argument without a value":              {func(s *domain.InfraEnvSettings) { s.KernelArguments = argument("") }, "KernelArgumentsInvalid"},
		"more kernel arguments than there is room for":   {func(s *domain.InfraEnvSettings) { s.KernelArguments = argument(strings.Repeat("a", 2048)) }, "KernelArgumentsInvalid"},
		"quoted kernel arguments":                        {func(s *domain.InfraEnvSettings) { s.KernelArguments = argument(`a="b c"`) }, ""},
		"another line in a proxy":                        {func(s *domain.InfraEnvSettings) { s.Proxy.HTTP = "http://proxy\nAGENT_URL=http://evil" }, "ControlCharacter"},
		"another line in what needs no proxy":            {func(s *domain.InfraEnvSettings) { s.Proxy.NoProxy = "a\rb" }, "ControlCharacter"},
		"another line in time servers":                   {func(s *domain.InfraEnvSettings) { s.AdditionalNTPSources = "a\nb" }, "ControlCharacter"},
		"another line in a version":                      {func(s *domain.InfraEnvSettings) { s.OSImageVersion = "a\nb" }, "ControlCharacter"},
		"an escape in a key":                             {func(s *domain.InfraEnvSettings) { s.SSHAuthorizedKey = "ssh-ed25519 AAAA a\x1b[2J" }, "ControlCharacter"},
		"several keys":                                   {func(s *domain.InfraEnvSettings) { s.SSHAuthorizedKey = "ssh-ed25519 AAAA a\r\nssh-ed25519 BBBB\tb\n" }, ""},
		"an override that is a number":                   {func(s *domain.InfraEnvSettings) { s.IgnitionConfigOverride = "5" }, "IgnitionInvalid"},
		"an override of ignition's second version":       {func(s *domain.InfraEnvSettings) { s.IgnitionConfigOverride = `{"ignition":{"version":"2.2.0"}}` }, "IgnitionInvalid"},
		"an override without a version":                  {func(s *domain.InfraEnvSettings) { s.IgnitionConfigOverride = `{}` }, "IgnitionInvalid"},
		"an override":                                    {func(s *domain.InfraEnvSettings) { s.IgnitionConfigOverride = `{"ignition":{"version":"3.4.0"}}` }, ""},
		"a trust bundle that is none":                    {func(s *domain.InfraEnvSettings) { s.AdditionalTrustBundle = "hello" }, "TrustBundleInvalid"},
		"a trust bundle that ends too early":             {func(s *domain.InfraEnvSettings) { s.AdditionalTrustBundle = trusted + trusted[:100] }, "TrustBundleInvalid"},
		"a key in a trust bundle": {func(s *domain.InfraEnvSettings) {
			s.AdditionalTrustBundle = strings.ReplaceAll(trusted, "CERTIFICATE", "PRIVATE KEY")
		}, "TrustBundleInvalid"},
		"a trust bundle without a certificate": {func(s *domain.InfraEnvSettings) {
			s.AdditionalTrustBundle = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
		}, "TrustBundleInvalid"},
		"two certificates with remarks": {func(s *domain.InfraEnvSettings) {
			s.AdditionalTrustBundle = "# one\n" + trusted + "\n# two\n" + trusted + "# end\n"
		}, ""},
		"a network that is no YAML":         {func(s *domain.InfraEnvSettings) { s.StaticNetworkConfig = network(": : [") }, "NetworkInvalid"},
		"a network that is a list":          {func(s *domain.InfraEnvSettings) { s.StaticNetworkConfig = network("- a") }, "NetworkInvalid"},
		"a network that is nothing":         {func(s *domain.InfraEnvSettings) { s.StaticNetworkConfig = network("") }, "NetworkInvalid"},
		"a network":                         {func(s *domain.InfraEnvSettings) { s.StaticNetworkConfig = network("interfaces: []") }, ""},
		"an address that is none":           {func(s *domain.InfraEnvSettings) { s.RendezvousIP = "abc" }, "AddressInvalid"},
		"an address":                        {func(s *domain.InfraEnvSettings) { s.RendezvousIP = "2001:db8::1" }, ""},
		"a pull secret that is a number":    {func(s *domain.InfraEnvSettings) { s.PullSecret = "5" }, "PullSecretInvalid"},
		"a pull secret without credentials": {func(s *domain.InfraEnvSettings) { s.PullSecret = "{}" }, "PullSecretInvalid"},
		"a label that is none":              {func(s *domain.InfraEnvSettings) { s.AgentLabels = map[string]string{"a b": "c"} }, "LabelInvalid"},
	} {
		_, err := w.UpdateInfraEnv(t.Context(), alice, e.ID, func(s *domain.InfraEnvSettings) error {
			c.change(s)
			return nil
		})
		assert.Equal(t, c.reason, domain.ReasonOf(err), what)
		settings := domain.InfraEnvSettings{PullSecret: `{"auths":{}}`}
		c.change(&settings)
		_, err = w.CreateInfraEnv(t.Context(), alice, domain.NewInfraEnv{Name: "e", InfraEnvSettings: settings})
		assert.Equal(t, c.reason, domain.ReasonOf(err), what)
	}
}

func TestSettingsOfClustersAndHostsThatCannotBecomeAnythingAreRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.cluster(alice)
	for what, change := range map[string]func(*domain.ClusterSettings){
		"PullSecretInvalid": func(s *domain.ClusterSettings) { s.PullSecret = "5" },
		"ControlCharacter":  func(s *domain.ClusterSettings) { s.Proxy.HTTPS = "http://proxy\nb" },
		"AddressInvalid":    func(s *domain.ClusterSettings) { s.APIVIPs = []string{"abc"} },
	} {
		_, err := w.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error {
			change(s)
			return nil
		})
		assert.Equal(t, what, domain.ReasonOf(err))
	}
	key := w.register(w.infraEnv(alice), "n1")
	for _, refused := range []struct {
		reason string
		change func(*domain.HostSettings)
	}{
		{"LabelInvalid", func(s *domain.HostSettings) { s.NodeLabels = map[string]string{"a": "not a value"} }},
		{"LabelInvalid", func(s *domain.HostSettings) { s.NodeLabels = map[string]string{"-": ""} }},
		{"IgnitionInvalid", func(s *domain.HostSettings) { s.IgnitionConfigOverrides = "5" }},
		{"IgnitionInvalid", func(s *domain.HostSettings) { s.IgnitionConfigOverrides = `{"ignition":{"version":"9.9.9"}}` }},
		{"ControlCharacter", func(s *domain.HostSettings) { s.RequestedHostname = "a\nb" }},
		{"InstallerArgsInvalid", func(s *domain.HostSettings) { s.InstallerArgs = `{"--copy-network": true}` }},
		{"InstallerArgsInvalid", func(s *domain.HostSettings) { s.InstallerArgs = `["--save-partlabel", "data"]` }},
		{"InstallerArgsInvalid", func(s *domain.HostSettings) { s.InstallerArgs = `["--append-karg"]` }},
		{"", func(s *domain.HostSettings) { s.InstallerArgs = `["--append-karg", "nomodeset", "--copy-network"]` }},
		{"", func(s *domain.HostSettings) { s.NodeLabels = map[string]string{"node-role.example.com/db": ""} }},
		{"TaintInvalid", func(s *domain.HostSettings) { s.NodeTaints = []domain.Taint{{Key: "a", Effect: "Never"}} }},
		{"TaintInvalid", func(s *domain.HostSettings) {
			s.NodeTaints = []domain.Taint{{Key: "a", Value: "not a value", Effect: "NoExecute"}}
		}},
		{"TaintInvalid", func(s *domain.HostSettings) { s.NodeTaints = []domain.Taint{{Effect: "NoExecute"}} }},
		{"TaintInvalid", func(s *domain.HostSettings) {
			s.NodeTaints = []domain.Taint{{Key: "a", Value: "1", Effect: "NoExecute"}, {Key: "a", Value: "2", Effect: "NoExecute"}}
		}},
		{"TaintInvalid", func(s *domain.HostSettings) { s.NodeTaints = make([]domain.Taint, 65) }},
		{"", func(s *domain.HostSettings) {
			s.NodeTaints = []domain.Taint{{Key: "example.com/a", Effect: "NoExecute"}, {Key: "example.com/a", Effect: "NoSchedule"}}
		}},
	} {
		_, err := w.UpdateHost(t.Context(), alice, key, func(s *domain.HostSettings) error {
			refused.change(s)
			return nil
		})
		assert.Equal(t, refused.reason, domain.ReasonOf(err))
	}
}

func TestInstallerArgumentsOfAgentsOfAssistedServiceAreTheirOwn(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	key := domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}
	const args = `["--save-partlabel", "data"]`
	set := func() error {
		_, err := w.UpdateHost(t.Context(), alice, key, func(s *domain.HostSettings) error {
			s.InstallerArgs, s.Approved = args, !s.Approved
			return nil
		})
		return err
	}
	_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, AgentVersion: "quay.io/agent:1"})
	require.NoError(t, err)
	require.NoError(t, set())
	_, err = w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "1"})
	require.NoError(t, err)
	require.NoError(t, set(), "what was stored keeps no other setting from being changed")
	other := w.register(e, "n2")
	_, err = w.UpdateHost(t.Context(), alice, other, func(s *domain.HostSettings) error {
		s.InstallerArgs = args
		return nil
	})
	require.ErrorContains(t, err, `installer argument "--save-partlabel" has no meaning for this agent: write --append-karg, --delete-karg or --copy-network`)
}

func TestNamesAreCountedInCharacters(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	for name, reason := range map[string]string{strings.Repeat("機", 253): "", strings.Repeat("機", 254): "NameInvalid", "a\nb": "ControlCharacter"} {
		_, err := w.CreateInfraEnv(t.Context(), alice, domain.NewInfraEnv{Name: name})
		assert.Equal(t, reason, domain.ReasonOf(err))
		_, err = w.CreateCluster(t.Context(), alice, domain.NewCluster{Name: name})
		assert.Equal(t, reason, domain.ReasonOf(err))
	}
}
