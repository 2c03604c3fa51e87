// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package osimage_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
)

func TestConfigDrive(t *testing.T) {
	h := &metal3v1.BareMetalHost{}
	h.Namespace, h.Name, h.UID = "site", "node-1", "11111111-1111-4111-8111-111111111111"
	c, err := osimage.ConfigDriveOf(h, osimage.ConfigTexts{UserData: "#cloud-config\n", NetworkData: "links: []\n", MetaData: "name: mine\n"})
	require.NoError(t, err)
	assert.Equal(t, "#cloud-config\n", c.UserData)
	assert.JSONEq(t, `{"links":[]}`, string(c.NetworkData))
	assert.Equal(t, map[string]any{
		"uuid": "11111111-1111-4111-8111-111111111111", "name": "mine", "local-hostname": "node-1", "local_hostname": "node-1", "metal3-name": "node-1", "metal3-namespace": "site",
	}, c.MetaData)
	for _, texts := range []osimage.ConfigTexts{{NetworkData: "- hush"}, {MetaData: "hush: ["}} {
		_, err := osimage.ConfigDriveOf(h, texts)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hush", "the error does not quote a Secret")
	}
}

// TestALiveISOHasAConfigDriveOnlyWhereItsUserNamesOne has a management controller with one virtual medium boot an ISO.
func TestALiveISOHasAConfigDriveOnlyWhereItsUserNamesOne(t *testing.T) {
	h := &metal3v1.BareMetalHost{}
	h.Spec.Image = &metal3v1.Image{URL: "https://images/discovery.iso", DiskFormat: new("live-iso")}
	c, err := osimage.ConfigDriveOf(h, osimage.ConfigTexts{})
	require.NoError(t, err)
	assert.True(t, c.Empty())
	c, err = osimage.ConfigDriveOf(h, osimage.ConfigTexts{UserData: "#cloud-config\n"})
	require.NoError(t, err)
	assert.NotEmpty(t, c.MetaData, "a user who names a Secret gets it")
	h.Spec.Image.DiskFormat = new("raw")
	c, err = osimage.ConfigDriveOf(h, osimage.ConfigTexts{})
	require.NoError(t, err)
	assert.False(t, c.Empty())
}

func TestTheCredentialsOfARegistryAreReadFromADockerConfiguration(t *testing.T) {
	const url, pair = "oci://registry.example.com:5000/images/system:1", "bWU6aHVzaA=="
	for name, c := range map[string]struct {
		key, text, want, wrong string
	}{
		"as kubectl writes it":              {".dockerconfigjson", `{"auths":{"registry.example.com:5000":{"username":"me","password":"hush","auth":"bWU6aHVzaA=="}}}`, pair, ""},
		"without auth":                      {".dockerconfigjson", `{"auths":{"REGISTRY.example.com:5000":{"username":"me","password":"hush"}}}`, pair, ""},
		"with a URL for the registry":       {".dockerconfigjson", `{"auths":{"https://registry.example.com:5000/v2/":{"auth":"bWU6aHVzaA=="}}}`, pair, ""},
		"in the former form":                {".dockercfg", `{"registry.example.com:5000/images":{"auth":"bWU6aHVzaA=="}}`, pair, ""},
		"for a part of the registry, too":   {".dockerconfigjson", `{"auths":{"registry.example.com:5000":{"auth":"aHVzaA=="},"registry.example.com:5000/images":{"auth":"bWU6aHVzaA=="},"registry.example.com:5000/imag":{"auth":"aHVzaA=="}}}`, pair, ""},
		"for this repository":               {".dockerconfigjson", `{"auths":{"registry.example.com:5000/images/":{"auth":"aHVzaA=="},"registry.example.com:5000/images/system":{"auth":"bWU6aHVzaA=="}}}`, pair, ""},
		"for the rest of the registry":      {".dockerconfigjson", `{"auths":{"registry.example.com:5000":{"auth":"bWU6aHVzaA=="},"registry.example.com:5000/others":{"auth":"aHVzaA=="}}}`, pair, ""},
		"for another part of the registry":  {".dockerconfigjson", `{"auths":{"registry.example.com:5000/others":{"auth":"bWU6aHVzaA=="}}}`, "", "registry.example.com:5000"},
		"in a credential helper":            {".dockerconfigjson", `{"auths":{"registry.example.com:5000":{}},"credsStore":"hush"}`, "", "registry.example.com:5000"},
		"for another registry":              {".dockerconfigjson", `{"auths":{"example.com":{"auth":"bWU6aHVzaA=="}}}`, "", "registry.example.com:5000"},
		"not at all":                        {".dockerconfigjson", `hush`, "", "not a Docker configuration"},
		"in a Secret that is for passwords": {"password", `hush`, "", ".dockerconfigjson"},
	} {
		got, err := osimage.PullSecret(map[string][]byte{c.key: []byte(c.text)}, url)
		assert.Equal(t, c.want, got, name)
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong, name)
			assert.NotContains(t, err.Error(), "hush", name)
		} else {
			require.NoError(t, err, name)
		}
	}
	image := &metal3v1.Image{URL: url, OCIAuthSecretName: new("registry")}
	assert.Equal(t, "registry", osimage.PullSecretName(image))
	image.URL = "https://images/a.qcow2"
	assert.Empty(t, osimage.PullSecretName(image), "it is for OCI alone")
}

func TestURLsInTextsOfIronicHideTheirSecrets(t *testing.T) {
	assert.Equal(t, "cannot get http://images/a now", osimage.WithoutURLSecrets("cannot get http://me:hush@images/a?sig=hush now"))
	assert.Equal(t, "cannot get https://…", osimage.WithoutURLSecrets("cannot get https://me:hus…"))
	h := &metal3v1.BareMetalHost{}
	h.Spec.Image = &metal3v1.Image{URL: "https://me:hush@images/a?sig=hush"}
	assert.Equal(t, "https://images/a", osimage.Name(h))
}
