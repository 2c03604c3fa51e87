// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestText(t *testing.T) {
	const token = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl"
	for name, c := range map[string]struct{ text, want string }{
		"plain":                    {"1 of 2 replicas are ready", "1 of 2 replicas are ready"},
		"address without secrets":  {"asked https://ironic.example.com:6385/v1/nodes twice", "asked https://ironic.example.com:6385/v1/nodes twice"},
		"token":                    {"refused " + token, "refused REMOVED"},
		"header":                   {"Authorization: Bearer abcdefgh12345678", "Authorization: Bearer REMOVED"},
		"password of an address":   {"proxy http://me:secret@proxy.example.com:3128", "proxy http://proxy.example.com:3128"},
		"token in a query":         {"http://images.example.com/images/1?api_key=" + token, "http://images.example.com/images/1?REMOVED"},
		"short token in a path":    {"http://images.example.com/i/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8/full.iso", "http://images.example.com/i/REMOVED/full.iso"},
		"id in a path stays":       {"http://a/v2/infra-envs/1b4e28ba-2fa1-11d2-883f-0016d3cca427/hosts", "http://a/v2/infra-envs/1b4e28ba-2fa1-11d2-883f-0016d3cca427/hosts"},
		"private key":              {"a\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\nb", "a\nREMOVED\nb"},
		"private key that is cut":  {"a -----BEGIN PRIVATE KEY-----\nMHcCAQEE", "a REMOVED"},
		"certificate is no secret": {"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, Text(c.text)) })
	}
}

func TestObject(t *testing.T) {
	object := map[string]any{
		"metadata": map[string]any{
			"name": "rack", "managedFields": []any{"f"},
			"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "http://u:p@h/x"},
		},
		"spec": map[string]any{
			"ignitionConfigOverride": `{"passwd":{}}`, "installerEnv": []any{map[string]any{"name": "KEY", "value": "v"}}, "ignitionConfigOverrides": "", "size": int64(3),
		},
		"status": map[string]any{"bootArtifacts": map[string]any{"initrd": "http://h/initrd?api_key=k"}, "list": []any{"http://u:p@h/"}},
	}
	Object(object)
	assert.Equal(t, map[string]any{
		"metadata": map[string]any{"name": "rack", "annotations": map[string]any{"note": "http://h/x"}},
		"spec":     map[string]any{"ignitionConfigOverride": "REMOVED", "installerEnv": "REMOVED", "ignitionConfigOverrides": "", "size": int64(3)},
		"status":   map[string]any{"bootArtifacts": map[string]any{"initrd": "http://h/initrd?REMOVED"}, "list": []any{"http://h/"}},
	}, object)
}

// TestAnnotations: some say in their values what fields say elsewhere, and others hold the whole object.
func TestAnnotations(t *testing.T) {
	object := map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		"bmac.agent-install.openshift.io/ignition-config-overrides": `{"passwd":{"users":[{"name":"core","passwordHash":"$6$"}]}}`,
		"agent-install.openshift.io/install-config-overrides":       `{"platform":{"baremetal":{"hosts":[{"bmc":{"password":"p"}}]}}}`,
		"bmac.agent-install.openshift.io/role":                      "worker",
		"kapp.k14s.io/original":                                     `{"spec":{"ignitionConfigOverride":"{}"}}`,
		"objectset.rio.cattle.io/applied":                           "H4sIAAAA",
	}}}
	Object(object)
	assert.Equal(t, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		"bmac.agent-install.openshift.io/ignition-config-overrides": "REMOVED",
		"agent-install.openshift.io/install-config-overrides":       "REMOVED",
		"bmac.agent-install.openshift.io/role":                      "worker",
	}}}, object)
}

// TestVariables: credentials of a collector of traces stand in the environment of an operator, as docs/operations.md has it.
func TestVariables(t *testing.T) {
	container := map[string]any{"name": "pool-operator", "env": []any{
		map[string]any{"name": "OTEL_EXPORTER_OTLP_HEADERS", "value": "x-honeycomb-team=hcaik_01,authorization=Bearer%20abcdefgh12345678"},
		map[string]any{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "https://collector.example.com:4317"},
		map[string]any{"name": "HTTPS_PROXY", "value": "http://me:secret@proxy.example.com:3128"},
		map[string]any{"name": "PASSWORD", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "s", "key": "password"}}},
	}}
	Object(container)
	assert.Equal(t, map[string]any{"name": "pool-operator", "env": []any{
		map[string]any{"name": "OTEL_EXPORTER_OTLP_HEADERS", "value": "REMOVED"},
		map[string]any{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "https://collector.example.com:4317"},
		map[string]any{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"},
		map[string]any{"name": "PASSWORD", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "s", "key": "password"}}},
	}}, container)
}

// TestNetworks: the network of an NMStateConfig has the keys that its machines prove themselves with.
func TestNetworks(t *testing.T) {
	network := map[string]any{"config": map[string]any{"interfaces": []any{
		map[string]any{"name": "macsec0", "macsec": map[string]any{"base-iface": "eth1", "mka-cak": "50b71a8ef0bd5751ea76de6d6c98c03a", "mka-ckn": "f2b4297d39da7330910a74abc0449feb"}},
		map[string]any{"name": "eth1", "802.1x": map[string]any{"identity": "node-1", "password": "p", "private-key-password": "p"}},
		map[string]any{"name": "ipsec0", "libreswan": map[string]any{"left": "192.0.2.1", "psk": "p"}},
	}}}
	Object(network)
	assert.Equal(t, map[string]any{"config": map[string]any{"interfaces": []any{
		map[string]any{"name": "macsec0", "macsec": map[string]any{"base-iface": "eth1", "mka-cak": "REMOVED", "mka-ckn": "f2b4297d39da7330910a74abc0449feb"}},
		map[string]any{"name": "eth1", "802.1x": map[string]any{"identity": "node-1", "password": "REMOVED", "private-key-password": "REMOVED"}},
		map[string]any{"name": "ipsec0", "libreswan": map[string]any{"left": "192.0.2.1", "psk": "REMOVED"}},
	}}}, network)
}
