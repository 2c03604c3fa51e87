// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/crd"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
)

// olderHosts is an API server with the BareMetalHosts of a baremetal operator from before conditions, and with the other kinds of Muster.
func olderHosts(t *testing.T) *rest.Config {
	t.Helper()
	older, err := os.ReadFile(needtest.Field(t, "crds", "capm3", "metal3.io_baremetalhosts.yaml"))
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", controlplanetest.BareKubeconfig(t))
	require.NoError(t, err)
	config.QPS = -1
	scheme := runtime.NewScheme()
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	files, err := fs.Glob(crd.FS, "metal3.io_*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		text, err := crd.FS.ReadFile(file)
		require.NoError(t, err)
		if file == "metal3.io_baremetalhosts.yaml" {
			text = older
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.Unmarshal(text, definition))
		require.NoError(t, c.Create(t.Context(), definition))
	}
	require.True(t, waitFor(patience, func() bool {
		for _, file := range files {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			text, _ := crd.FS.ReadFile(file)
			require.NoError(t, yaml.Unmarshal(text, definition))
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(definition), definition))
			if len(definition.Status.Conditions) < 2 { // NamesAccepted, Established
				return false
			}
		}
		return true
	}), "the kinds are served")
	return config
}

func TestHostsOfAnOlderBaremetalOperatorAreHandedOver(t *testing.T) {
	w := newTestEnvAt(t, olderHosts(t))
	uuid := w.enrol(1)
	w.operate()
	w.discover("all")
	h := w.host("node-00001")
	assert.Equal(t, metal3v1.OperationalStatusDiscovered, h.Status.OperationalStatus)
	assert.Equal(t, uuid, h.Status.Provisioning.ID)
	require.NotNil(t, h.Status.HardwareDetails)
	assert.NotEmpty(t, h.Status.HardwareDetails.NIC)
	assert.Empty(t, h.Status.Conditions, "this definition has none")

	w.credentials(h, redfish, true)
	w.released(h)
	n, err := w.node(uuid)
	require.NoError(t, err)
	assert.Equal(t, "redfish", n.Driver)
}
