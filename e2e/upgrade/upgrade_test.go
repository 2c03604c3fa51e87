// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgrade_test upgrades what former releases wrote, as docs/operations.md tells administrators to. testdata holds, for each release, its kinds, the
// objects that its programs wrote as the API server stored them, its database, and what users had in them.
package upgrade_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/estate"
	"github.com/muster-io/muster/e2e/render"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// record is what users have, and of which objects.
type record struct {
	Estate estate.Estate
	// UIDs of clusters, addresses and InfraEnvs, by kind/name: an object that was made anew has another one.
	UIDs map[string]types.UID
	// Events is the address of the events of the cluster that waits for machines: it names the record in the database of agent-service.
	Events string
}

func look(t require.TestingT, c *estate.Cluster) record {
	out := record{Estate: c.Read(t), UIDs: map[string]types.UID{}}
	clusters, addresses, envs := &hivev1.ClusterDeploymentList{}, &ipamv1.IPAddressList{}, &agentv1.InfraEnvList{}
	for _, list := range []client.ObjectList{clusters, addresses, envs} {
		require.NoError(t, c.List(c.Context(), list))
	}
	for i := range clusters.Items {
		out.UIDs["ClusterDeployment/"+clusters.Items[i].Name] = clusters.Items[i].UID
	}
	for i := range addresses.Items {
		out.UIDs["IPAddress/"+addresses.Items[i].Name] = addresses.Items[i].UID
	}
	require.Len(t, envs.Items, 1)
	out.UIDs["InfraEnv/"+envs.Items[0].Name] = envs.Items[0].UID
	install := &hiveextv1.AgentClusterInstall{}
	require.NoError(t, c.Get(c.Context(), client.ObjectKey{Namespace: estate.Team, Name: "metal"}, install))
	out.Events = install.Status.DebugInfo.EventsURL
	require.NotEmpty(t, out.Events)
	return out
}

// The new kinds and programs take over what the old ones wrote: no cluster is made anew, and no address and no name changes; nor do they when the programs,
// and then the kinds, of the release are put back.
func TestWhatFormerReleasesWroteIsTakenOver(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	releases, err := filepath.Glob("testdata/v*")
	require.NoError(t, err)
	require.NotEmpty(t, releases)
	for _, release := range releases {
		t.Run(filepath.Base(release), func(t *testing.T) { upgrade(t, release) })
	}
}

func upgrade(t *testing.T, release string) {
	t.Helper()
	old := filepath.Join("e2e/upgrade", release)
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Overlay: old, UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	var objects []entry
	readJSON(t, filepath.Join(release, objectsFile), &objects)
	into := openStore(local)
	for _, object := range objects {
		require.NoError(t, into.write(t.Context(), object))
	}
	var had record
	readJSON(t, filepath.Join(release, estateFile), &had)
	c := estate.New(t, local)
	require.EventuallyWithT(t, func(collect *assert.CollectT) { assert.Equal(collect, had, look(collect, c)) }, estate.Patience, estate.Interval, "the fixture")

	applyDirectory(t, local, "deploy/overlays/production")
	require.EventuallyWithT(t, func(collect *assert.CollectT) { assert.Equal(collect, had, look(collect, c)) }, estate.Patience, estate.Interval, "the new kinds")
	database, err := os.ReadFile(filepath.Join(release, databaseFile))
	require.NoError(t, err)
	service := agentService()
	require.NoError(t, os.MkdirAll(filepath.Join(local.Dir, service.Name), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(local.Dir, service.Name, databaseFile), database, 0o600))
	c.StartOperators("")
	require.NoError(t, local.StartOperator(t.Context(), service))
	works(c, "after")
	require.EventuallyWithT(t, func(collect *assert.CollectT) { assert.Equal(collect, had, look(collect, c)) }, estate.Patience, estate.Interval, "the new programs")

	require.NoError(t, local.Failed())

	t.Run("back", func(t *testing.T) { rollBack(t, c, release, had) })
}

// rollBack starts the programs of a former release over the kinds, objects and database of the present state, and applies the former kinds last.
func rollBack(t *testing.T, c *estate.Cluster, release string, had record) {
	t.Helper()
	former := buildFormer(t, release)
	c = &estate.Cluster{T: t, Client: c.Client, Local: c.Local}
	same := func(step string) {
		require.EventuallyWithT(t, func(collect *assert.CollectT) { assert.Equal(collect, had, look(collect, c)) }, estate.Patience, estate.Interval, step)
	}
	setNewField(c)
	service := agentService()
	c.StopOperators()
	c.Local.StopOperator(service.Name)

	apply(t, c.Local, former.rights(t))
	c.StartOperators(former.programs())
	service.Program = filepath.Join(former.programs(), service.Name)
	require.NoError(t, c.Local.StartOperator(t.Context(), service))
	works(c, "back")
	same("the former programs")
	requireNewField(c)

	applyDirectory(t, c.Local, filepath.Join("e2e/upgrade", release))
	works(c, "kinds")
	same("the former kinds")
	require.NoError(t, c.Local.Failed())
}

// works has the operators serve a new claim of an address, a new InfraEnv, and a new pool, which makes a cluster, so that they have read what is there; all of them go again.
func works(c *estate.Cluster, name string) {
	c.Helper()
	claim := &ipamv1.IPClaim{ObjectMeta: estate.Named(name)}
	claim.Spec.Pool.Name = "rack"
	env := &agentv1.InfraEnv{ObjectMeta: estate.Named(name)}
	env.Spec.PullSecretRef.Name = "pull"
	dev := &hivev1.ClusterPool{}
	require.NoError(c, c.Get(c.Context(), client.ObjectKey{Namespace: estate.Team, Name: "dev"}, dev))
	another := &hivev1.ClusterPool{ObjectMeta: estate.Named(name), Spec: *dev.Spec.DeepCopy()}
	c.Make(claim)
	c.Make(env)
	c.Make(another)
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		require.NoError(collect, c.Get(c.Context(), client.ObjectKeyFromObject(claim), claim))
		require.NotNil(collect, claim.Status.Address)
		require.NoError(collect, c.Get(c.Context(), client.ObjectKeyFromObject(env), env))
		assert.NotNil(collect, agentv1.FindCondition(env.Status.Conditions, agentv1.ConditionImageCreated))
		pool := &hivev1.ClusterPool{}
		require.NoError(collect, c.Get(c.Context(), client.ObjectKey{Namespace: estate.Team, Name: "dev"}, pool))
		assert.EqualValues(collect, 1, pool.Status.Size)
		clusters := &hivev1.ClusterDeploymentList{}
		require.NoError(collect, c.List(c.Context(), clusters))
		assert.True(collect, slices.ContainsFunc(clusters.Items, func(cluster hivev1.ClusterDeployment) bool {
			return cluster.Spec.ClusterPoolRef != nil && cluster.Spec.ClusterPoolRef.PoolName == name
		}), "the pool makes clusters")
	}, estate.Patience, estate.Interval)
	for _, object := range []client.Object{claim, env, another} {
		require.NoError(c, c.Delete(c.Context(), object))
		require.EventuallyWithT(c, func(collect *assert.CollectT) {
			assert.Error(collect, c.Get(c.Context(), client.ObjectKeyFromObject(object), object))
		}, estate.Patience, estate.Interval)
	}
}

func applyDirectory(t *testing.T, local *environment.Local, directory string) {
	t.Helper()
	objects, err := render.Directory(directory)
	require.NoError(t, err)
	apply(t, local, objects)
}

func apply(t *testing.T, local *environment.Local, objects []*unstructured.Unstructured) {
	t.Helper()
	config, err := environment.Config(local)
	require.NoError(t, err)
	require.NoError(t, render.Apply(t.Context(), config, objects))
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	full, err := checkout.Path("e2e", "upgrade", path)
	require.NoError(t, err)
	text, err := os.ReadFile(full)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}
