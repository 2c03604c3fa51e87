// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package osimage

import (
	"encoding/json"
	"fmt"
	"maps"

	"sigs.k8s.io/yaml"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// ConfigDrive is what the deployed system reads when it boots first, in the form of OpenStack's config drive.
type ConfigDrive struct {
	MetaData    map[string]any  `json:"meta_data"`
	NetworkData json.RawMessage `json:"network_data,omitempty"`
	UserData    string          `json:"user_data,omitempty"`
}

// Empty reports whether there is nothing to read.
func (c ConfigDrive) Empty() bool {
	return c.MetaData == nil && c.NetworkData == nil && c.UserData == ""
}

// ConfigTexts are the texts of the Secrets that a host names, empty where it names none.
type ConfigTexts struct{ UserData, NetworkData, MetaData string }

// ConfigDriveOf makes a config drive of the texts. Network data and metadata are YAML or JSON. The metadata says uuid: Ironic would write the UUID of its node there, but
// Cluster API's provider for metal3 looks for the Node whose label has the UID of the host. The error does not quote text that cannot be read, because it can be secret.
// A live ISO for which no Secret is named has none: Ironic attaches it as a second virtual medium, which many management controllers do not have, and the deployment would fail.
func ConfigDriveOf(h *metal3v1.BareMetalHost, t ConfigTexts) (ConfigDrive, error) {
	if IsLive(h.Spec.Image) && t == (ConfigTexts{}) {
		return ConfigDrive{}, nil
	}
	c := ConfigDrive{UserData: t.UserData, MetaData: map[string]any{
		"uuid": string(h.UID), "name": h.Name, "local-hostname": h.Name, "local_hostname": h.Name, "metal3-name": h.Name, "metal3-namespace": h.Namespace,
	}}
	var more map[string]any
	if yaml.Unmarshal([]byte(t.MetaData), &more) != nil {
		return c, fmt.Errorf("the metadata is not a YAML or JSON object")
	}
	maps.Copy(c.MetaData, more)
	if t.NetworkData == "" {
		return c, nil
	}
	var network map[string]any
	if yaml.Unmarshal([]byte(t.NetworkData), &network) != nil || network == nil {
		return c, fmt.Errorf("the network data is not a YAML or JSON object")
	}
	data, err := json.Marshal(network)
	if err != nil {
		return c, fmt.Errorf("the network data is no JSON object")
	}
	c.NetworkData = data
	return c, nil
}
