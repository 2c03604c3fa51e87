// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/servedkinds"
)

func TestAnOperatorThatManagesHostsNeedsAllOfTheirFields(t *testing.T) {
	assert.Equal(t, []servedkinds.Set{servedkinds.Hosts, servedkinds.DiscoveryOperator}, Options{}.kinds())
	assert.Equal(t, []servedkinds.Set{servedkinds.ManagedHosts, servedkinds.DiscoveryOperator}, Options{ManageHosts: true}.kinds())
}

func TestOptions(t *testing.T) {
	none := func(string) string { return "" }
	o, err := Parse(nil, none)
	require.NoError(t, err)
	assert.Equal(t, ProvisionerIronic, o.Provisioner, "fake machines appear only on request")
	assert.Equal(t, "muster-discovery-operator", o.Namespace)
	assert.False(t, o.ManageHosts)
	assert.False(t, o.AutoscaleToHosts)
	assert.Empty(t, o.IronicNamespaces)
	o, err = Parse([]string{"--provisioner=ironic", "--ironic-namespaces=racks,lab", "--log-level=debug", "--webhook-bind-address=127.0.0.1:9443"}, func(key string) string {
		return map[string]string{"POD_NAMESPACE": "here"}[key]
	})
	require.NoError(t, err)
	assert.Equal(t, "here", o.Namespace)
	assert.Equal(t, "here", o.LeaderElectionNamespace, "the lease is beside the reservations unless a flag says otherwise")
	assert.Equal(t, []string{"racks", "lab"}, o.IronicNamespaces)
	for flag, text := range map[string]string{
		"--log-level=loud": "write debug, info or error", "--provisioner=magic": "use demo or ironic", "--namespace=": "name the namespace",
		"--demo-interval=0s": "positive", "--webhook-bind-address=9443": "such as :9443", "--webhook-url=http://here/x": "without path",
		"--unknown": "not defined: -unknown",
	} {
		_, err := Parse([]string{flag}, none)
		require.ErrorContains(t, err, text, flag)
	}
}
