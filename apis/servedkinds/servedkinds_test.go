// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package servedkinds_test

import (
	"context"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/crd"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/apis/servedkinds"
)

// patience is for an API server that is busy with the tests of others. It looks every five minutes again at definitions whose deletion it has not ended.
const patience = 6 * time.Minute

func definitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := fs.Glob(crd.FS, "*.yaml")
	require.NoError(t, err)
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text, err := crd.FS.ReadFile(file)
		require.NoError(t, err)
		definition := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.Unmarshal(text, definition))
		out = append(out, definition)
	}
	return out
}

// A kind that is waited for is in the set that the user is told to apply, in a version that it serves; none is forgotten.
func TestSetsAreThoseOfTheDefinitions(t *testing.T) {
	want, got := map[string][]string{}, map[string][]string{}
	for _, definition := range definitions(t) {
		set := definition.Labels["muster.io/crds"]
		kinds := servedkinds.Set(set).Kinds()
		if len(kinds) == 0 || definition.Spec.Names.Kind == "AgentReservation" {
			continue // optional
		}
		want[set] = append(want[set], definition.Spec.Names.Kind+"."+definition.Spec.Group)
		for _, kind := range kinds {
			if kind.Kind != definition.Spec.Names.Kind || kind.Group != definition.Spec.Group {
				continue
			}
			got[set] = append(got[set], kind.Kind+"."+kind.Group)
			assert.True(t, slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
				return v.Name == kind.Version && v.Served
			}), "%s is not served", kind)
		}
	}
	assert.Len(t, want, 7)
	assert.Equal(t, want, got)
}

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

func status(t *testing.T, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

func start(t *testing.T) (*rest.Config, client.Client) {
	t.Helper()
	config := controlplanetest.Start(t)
	scheme := runtime.NewScheme()
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return config, c
}

// remove deletes the definition of ClusterPool until discovery is without it, and returns a function that puts it back until it is served.
func remove(t *testing.T, config *rest.Config, c client.Client) (restore func()) {
	t.Helper()
	api, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	for _, definition := range definitions(t) {
		if definition.Spec.Names.Kind != "ClusterPool" {
			continue
		}
		require.NoError(t, c.Delete(t.Context(), definition.DeepCopy()))
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			assert.True(collect, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(definition), &apiextensionsv1.CustomResourceDefinition{})))
			assert.False(collect, serves(api, definition))
		}, patience, 20*time.Millisecond)
		return func() {
			require.NoError(t, c.Create(t.Context(), definition))
			require.Eventually(t, func() bool { return serves(api, definition) }, patience, 20*time.Millisecond)
		}
	}
	t.Fatal("there is no ClusterPool")
	return nil
}

// serves says whether discovery holds all versions of a definition, which follows its creation and deletion with a delay.
func serves(api discovery.ServerResourcesInterface, definition *apiextensionsv1.CustomResourceDefinition) bool {
	return !slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		list, err := api.ServerResourcesForGroupVersion(definition.Spec.Group + "/" + v.Name)
		return err != nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == definition.Spec.Names.Plural })
	})
}

func TestWaitSaysWhatToApplyAndGoesOnWhenItIsThere(t *testing.T) {
	config, c := start(t)
	sets := []servedkinds.Set{servedkinds.Clusters, servedkinds.PoolOperator}
	logged := &lines{}
	log := funcr.New(logged.add, funcr.Options{})
	require.NoError(t, servedkinds.Wait(t.Context(), config, log, "0", sets...))
	assert.Empty(t, logged.text(), "there is nothing to wait for")

	restore := remove(t, config, c)
	port, err := porttest.Find()
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- servedkinds.Wait(t.Context(), config, log, "127.0.0.1:"+port, sets...) }()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Contains(collect, logged.text(), `"kinds"="ClusterPool.v1.hive.openshift.io" "sets"="deploy/crds/pool-operator"`)
	}, patience, 20*time.Millisecond)
	assert.Equal(t, http.StatusOK, status(t, "http://127.0.0.1:"+port+"/healthz"))
	assert.Equal(t, http.StatusServiceUnavailable, status(t, "http://127.0.0.1:"+port+"/readyz"))
	restore()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("the kind is there, and the wait goes on")
	}
	assert.Len(t, logged.all, 1, "one missing kind is logged once")
	assert.Zero(t, status(t, "http://127.0.0.1:"+port+"/healthz"), "the address is free for the operator")
}

func TestWaitEndsWithItsContext(t *testing.T) {
	config, c := start(t)
	defer remove(t, config, c)()
	ctx, cancel := context.WithCancel(t.Context())
	log := funcr.New(func(string, string) { cancel() }, funcr.Options{})
	require.ErrorIs(t, servedkinds.Wait(ctx, config, log, "", servedkinds.PoolOperator), context.Canceled)
}
