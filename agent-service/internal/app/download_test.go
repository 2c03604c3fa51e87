// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/image"
)

// TestStaticNetworksAreDownloadedAsTheTarThatClientsKnow with the cards and the profiles of each machine.
func TestStaticNetworksAreDownloadedAsTheTarThatClientsKnow(t *testing.T) {
	content, err := staticNetworkArchive([]byte(`[
		{"network_yaml":"interfaces:\n- name: eno1\n  type: ethernet\n  state: up\n  ipv4: {enabled: true, dhcp: true}\n","mac_interface_map":[{"mac_address":"52:54:00:00:00:0A","logical_nic_name":"eno1"}]},
		{"network_yaml":"interfaces: broken\n","mac_interface_map":[{"mac_address":"52:54:00:00:00:0b","logical_nic_name":"eno1"}]}]`))
	require.NoError(t, err)
	archive, files := tar.NewReader(bytes.NewReader(content)), map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		text, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[header.Name] = string(text)
	}
	assert.Len(t, files, 4)
	assert.Equal(t, "52:54:00:00:00:0a=eno1\n", files["/etc/assisted/network/host0/mac_interface.ini"])
	assert.Contains(t, files["/etc/assisted/network/host0/eno1.nmconnection"], "type=ethernet")
	assert.Equal(t, "interfaces: broken\n", files["/etc/assisted/network/host1/network.yaml"], "a network that cannot be rendered is included as stated")
	empty, err := staticNetworkArchive(nil)
	require.NoError(t, err)
	_, err = tar.NewReader(bytes.NewReader(empty)).Next()
	assert.ErrorIs(t, err, io.EOF)
}

func TestTheChosenVersionOfAnImageIsSaid(t *testing.T) {
	catalog := &image.Catalog{Versions: []image.Version{{Name: "4.20", Architecture: "x86_64"}, {Name: "4.21", Architecture: "aarch64"}}}
	d := &discovery{handler: image.New(image.Options{Catalog: catalog})}
	for want, env := range map[string]domain.InfraEnvSettings{
		"4.20": {CPUArchitecture: "x86_64"}, "4.21": {CPUArchitecture: "arm64"}, "": {CPUArchitecture: "s390x"},
	} {
		assert.Equal(t, want, d.Version(&domain.InfraEnv{InfraEnvSettings: env}))
	}
}
