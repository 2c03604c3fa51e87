// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package servedkinds_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/apis/servedkinds"
)

// cluster is an API server whose definitions change.
type cluster struct {
	*testing.T
	client.Client
	config *rest.Config
	api    discovery.DiscoveryInterface
}

// newCluster returns one with the definitions of Muster.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", controlplanetest.BareKubeconfig(t))
	require.NoError(t, err)
	config.QPS = -1
	scheme := runtime.NewScheme()
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	c := &cluster{T: t, config: config}
	c.Client, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	c.api, err = discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	c.install(definitions(t)...)
	return c
}

// installed holds, by name, the definitions that the tests of this file have installed last. Their control plane is one.
var installed = map[string]*apiextensionsv1.CustomResourceDefinition{}

// install puts definitions in place of those of their names, until the API server has published their schemas. Those that it has published already stay: each change has it,
// and the controllers, read all schemas again.
func (c *cluster) install(wanted ...*apiextensionsv1.CustomResourceDefinition) {
	c.Helper()
	wanted = slices.DeleteFunc(wanted, func(definition *apiextensionsv1.CustomResourceDefinition) bool {
		return reflect.DeepEqual(installed[definition.Name], definition)
	})
	for _, definition := range wanted {
		delete(installed, definition.Name)
		key := client.ObjectKeyFromObject(definition)
		require.NoError(c, client.IgnoreNotFound(c.Delete(c.Context(), definition.DeepCopy())))
		require.Eventually(c, func() bool {
			return apierrors.IsNotFound(c.Get(c.Context(), key, &apiextensionsv1.CustomResourceDefinition{}))
		}, patience, 20*time.Millisecond)
	}
	for _, definition := range wanted {
		require.Eventually(c, func() bool { return !c.published(definition) }, patience, 20*time.Millisecond)
		require.NoError(c, c.Create(c.Context(), definition.DeepCopy()))
	}
	for _, definition := range wanted {
		require.Eventually(c, func() bool { return c.published(definition) }, patience, 50*time.Millisecond)
		installed[definition.Name] = definition
	}
}

// published says whether discovery and OpenAPI have a definition in all versions that are served.
func (c *cluster) published(definition *apiextensionsv1.CustomResourceDefinition) bool {
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		list, err := c.api.ServerResourcesForGroupVersion(definition.Spec.Group + "/" + version.Name)
		if err != nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == definition.Spec.Names.Kind }) {
			return false
		}
		text, err := c.api.RESTClient().Get().AbsPath("/openapi/v3/apis/" + definition.Spec.Group + "/" + version.Name).DoRaw(c.Context())
		if err != nil || !bytes.Contains(text, []byte(`"kind":"`+definition.Spec.Names.Kind+`"`)) {
			return false
		}
	}
	return true
}

// wait begins to wait for sets, and returns what is logged, whether the program is ready, and when the wait has ended.
func (c *cluster) wait(sets ...servedkinds.Set) (logged *lines, readiness func() int, ended <-chan error) {
	c.Helper()
	logged = &lines{}
	port, err := porttest.Find()
	require.NoError(c, err)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(c.Context())
	c.Cleanup(cancel)
	go func() {
		done <- servedkinds.Wait(ctx, c.config, funcr.New(logged.add, funcr.Options{}), "127.0.0.1:"+port, sets...)
	}()
	return logged, func() int { return status(c.T, "http://127.0.0.1:"+port+"/readyz") }, done
}

// goesOn checks that nothing is waited for.
func (c *cluster) goesOn(sets ...servedkinds.Set) {
	c.Helper()
	logged := &lines{}
	require.NoError(c, servedkinds.Wait(c.Context(), c.config, funcr.New(logged.add, funcr.Options{}), "0", sets...))
	assert.Empty(c, logged.text())
}

func read(t *testing.T, path string) (out []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.Unmarshal(document, definition))
		if definition.Name != "" {
			definition.ResourceVersion, definition.UID, definition.Status = "", "", apiextensionsv1.CustomResourceDefinitionStatus{}
			out = append(out, definition)
		}
	}
	require.NotEmpty(t, out)
	return out
}

// An operator of the present version is not ready beside the kinds of the former one, so that a rolling update keeps the former operator.
func TestWaitForKindsOfAFormerVersion(t *testing.T) {
	c := newCluster(t)
	all := []servedkinds.Set{
		servedkinds.AgentService, servedkinds.Clusters, servedkinds.DiscoveryOperator, servedkinds.Hosts, servedkinds.IPAMOperator,
		servedkinds.NetworkData, servedkinds.PoolOperator,
	}
	c.goesOn(all...)
	c.install(read(t, filepath.Join("..", "..", "e2e", "upgrade", "testdata", "v0.1", "kinds.yaml"))...)
	c.goesOn(servedkinds.AgentService, servedkinds.Clusters, servedkinds.Hosts, servedkinds.IPAMOperator, servedkinds.NetworkData)

	pools, ready, poolsEnded := c.wait(servedkinds.Clusters, servedkinds.PoolOperator)
	machines, _, machinesEnded := c.wait(servedkinds.Hosts, servedkinds.DiscoveryOperator)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Contains(collect, pools.text(), `"kinds"="ClusterPool.v1.hive.openshift.io without .status.provisioning.specHash .status.provisioning.sourcesHash" `+
			`"sets"="deploy/crds/pool-operator"`)
		assert.Contains(collect, machines.text(), `"kinds"="BareMetalHostDiscovery.v1alpha1.metal3.io without .status.counts.`)
		assert.Contains(collect, machines.text(), `"sets"="deploy/crds/discovery-operator"`)
	}, patience, 20*time.Millisecond)
	assert.Equal(t, http.StatusServiceUnavailable, ready())

	c.install(definitions(t)...)
	for _, ended := range []<-chan error{poolsEnded, machinesEnded} {
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Fatal("the fields are there, and the wait goes on")
		}
	}
}

// What other systems brought stays in place, and is older or newer.
func TestWaitTakesTheKindsOfOtherSystems(t *testing.T) {
	crds := needtest.Field(t, "crds")
	c := newCluster(t)
	for _, one := range []struct {
		directory, but string
		sets           []servedkinds.Set
	}{
		{"hive", "hive.openshift.io_cluster[pc]*.yaml", []servedkinds.Set{servedkinds.Clusters, servedkinds.PoolOperator}},
		{"agent-install", "", []servedkinds.Set{servedkinds.AgentService}},
		{"metal3-ipam", "", []servedkinds.Set{servedkinds.IPAMOperator}},
		{"capm3", "", []servedkinds.Set{servedkinds.NetworkData, servedkinds.Hosts, servedkinds.DiscoveryOperator}},
		{"metal3", "", []servedkinds.Set{servedkinds.Hosts, servedkinds.DiscoveryOperator}},
	} {
		files, err := filepath.Glob(filepath.Join(crds, one.directory, "*.yaml"))
		require.NoError(t, err)
		var theirs []*apiextensionsv1.CustomResourceDefinition
		for _, file := range files {
			if own, err := filepath.Match(one.but, filepath.Base(file)); err != nil || own {
				continue
			}
			for _, definition := range read(t, file) {
				definition.Spec.Conversion = nil // there is nothing that converts
				theirs = append(theirs, definition)
			}
		}
		c.install(theirs...)
		c.goesOn(one.sets...)
	}
}

// An operator that manages hosts writes fields that those of former baremetal operators lack, and is not ready beside their definition.
func TestWaitForTheKindsOfManagedHosts(t *testing.T) {
	older, present := needtest.Field(t, "crds", "capm3", "metal3.io_baremetalhosts.yaml"), needtest.Field(t, "crds", "metal3", "metal3.io_baremetalhosts.yaml")
	c := newCluster(t)
	c.goesOn(servedkinds.ManagedHosts)
	c.install(read(t, older)...)
	c.goesOn(servedkinds.Hosts)
	logged, ready, ended := c.wait(servedkinds.ManagedHosts)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Contains(collect, logged.text(), "BareMetalHost.v1alpha1.metal3.io without .status.")
		assert.Contains(collect, logged.text(), " .status.conditions")
		assert.Contains(collect, logged.text(), `"sets"="deploy/crds/hosts"`)
	}, patience, 20*time.Millisecond)
	assert.Equal(t, http.StatusServiceUnavailable, ready())
	c.install(read(t, present)...)
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("the fields are there, and the wait goes on")
	}
}

// An API server that does not publish schemas to the operator does not keep it from its work.
func TestWaitGoesOnWithoutSchemas(t *testing.T) {
	c := newCluster(t)
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return forbidden{next} })
	logged := &lines{}
	require.NoError(t, servedkinds.Wait(t.Context(), c.config, funcr.New(logged.add, funcr.Options{}), "0", servedkinds.PoolOperator))
	assert.Contains(t, logged.text(), "are not compared")
}

// forbidden refuses to read schemas.
type forbidden struct{ http.RoundTripper }

func (f forbidden) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/openapi/v3" {
		return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: r}, nil
	}
	return f.RoundTripper.RoundTrip(r)
}
