// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/leftovers"
	"github.com/muster-io/muster/e2e/render"
)

const (
	// patience is for operators that ask again after a while, on a machine that runs other tests.
	patience = time.Minute
	interval = 50 * time.Millisecond
)

// sets are the directories of deploy/crds that an operator needs.
var sets = map[string][]string{
	"pool-operator":      {"clusters", "pool-operator"},
	"ipam-operator":      {"ipam-operator", "network-data"},
	"discovery-operator": {"hosts", "discovery-operator"},
	"agent-service":      {"clusters", "agent-service"},
}

func apply(t *testing.T, config *rest.Config, dir string) {
	t.Helper()
	objects, err := render.Directory(dir)
	require.NoError(t, err)
	require.NoError(t, render.Apply(t.Context(), config, objects))
}

// Operators that are installed before their kinds wait, say which sets to apply, and begin when those are there. When the kinds of one go, with
// their objects, and come back, it goes on without a restart.
func TestOperatorsWaitForTheirKinds(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Overlay: "deploy/overlays/local/pool-operator", UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	config, err := environment.Config(local)
	require.NoError(t, err)
	for operator := range sets {
		apply(t, config, "deploy/overlays/local/"+operator)
	}
	started := map[string]chan error{}
	for _, operator := range environment.All() {
		if operator.Name == "agent-service" {
			require.NoError(t, local.StartOperator(t.Context(), operator), "REST needs no kinds")
			continue
		}
		ended := make(chan error, 1)
		started[operator.Name] = ended
		go func() { ended <- local.StartOperator(t.Context(), operator) }()
	}
	for operator, wanted := range sets {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			log, err := os.ReadFile(local.Log(operator))
			require.NoError(c, err)
			for _, set := range wanted {
				assert.Contains(c, string(log), "deploy/crds/"+set, operator)
			}
		}, patience, interval)
	}
	require.NoError(t, local.Failed())
	for _, set := range slices.Sorted(maps.Keys(all())) {
		apply(t, config, "deploy/crds/"+set)
	}
	for operator, ended := range started {
		require.NoError(t, <-ended, operator)
	}

	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	givesAnAddress(t, c, "first")
	kubectl(t, local.Kubeconfig(), "delete", "--wait", "-k", "deploy/crds/ipam-operator")
	apply(t, config, "deploy/crds/ipam-operator")
	givesAnAddress(t, c, "second")
	require.NoError(t, local.Failed(), "no operator ended")
}

func all() map[string]bool {
	out := map[string]bool{}
	for _, wanted := range sets {
		for _, set := range wanted {
			out[set] = true
		}
	}
	return out
}

// kubectl runs a command in the checkout's directory.
func kubectl(t *testing.T, kubeconfig string, args ...string) {
	t.Helper()
	program, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	root, err := checkout.Path()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "KUBECONFIG="+kubeconfig)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// givesAnAddress has ipam-operator serve a claim, and gives the address back.
func givesAnAddress(t *testing.T, c client.Client, name string) {
	t.Helper()
	pool := made(t, c, "ipam.metal3.io", "v1alpha1", "IPPool", name, map[string]any{
		"namePrefix": name, "prefix": int64(24), "pools": []any{map[string]any{"start": "192.0.2.10", "end": "192.0.2.10"}},
	})
	claim := made(t, c, "ipam.metal3.io", "v1alpha1", "IPClaim", name, map[string]any{"pool": map[string]any{"name": name}})
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		address, _, _ := unstructured.NestedString(claim.Object, "status", "address", "name")
		assert.NotEmpty(collect, address)
	}, patience, interval)
	for _, o := range []*unstructured.Unstructured{claim, pool} {
		require.NoError(t, c.Delete(t.Context(), o))
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			assert.True(collect, isGone(t, c, o))
		}, patience, interval)
	}
}

// made creates an object in the namespace default. For a moment after a kind was installed the API server does not know it everywhere.
func made(t *testing.T, c client.Client, group, version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	t.Helper()
	o := object(group, version, kind)
	o.SetNamespace("default")
	o.SetName(name)
	o.Object["spec"] = spec
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.NoError(collect, c.Create(t.Context(), o.DeepCopy()))
	}, patience, interval)
	return o
}

func isGone(t *testing.T, c client.Client, o *unstructured.Unstructured) bool {
	t.Helper()
	return client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), o.DeepCopy())) == nil && !exists(t, c, o)
}

func exists(t *testing.T, c client.Client, o *unstructured.Unstructured) bool {
	t.Helper()
	return c.Get(t.Context(), client.ObjectKeyFromObject(o), o.DeepCopy()) == nil
}

// Deleting the set of one operator deletes the objects of its kinds and of no other's; the shared kinds are in sets of their own.
func TestASetTakesNoObjectsOfOthersAlong(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Overlay: "apis/crd", UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	config, err := environment.Config(local)
	require.NoError(t, err)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	name := func(name string) map[string]any { return map[string]any{"name": name} }
	objects := map[string]*unstructured.Unstructured{
		"pool-operator": made(t, c, "hive.openshift.io", "v1", "ClusterClaim", "x", map[string]any{"clusterPoolName": "p"}),
		"ipam-operator": made(t, c, "ipam.metal3.io", "v1alpha1", "IPClaim", "x", map[string]any{"pool": name("p")}),
		"network-data":  made(t, c, "infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3DataClaim", "x", map[string]any{"template": name("t")}),
		"agent-service": made(t, c, "agent-install.openshift.io", "v1beta1", "InfraEnv", "x", map[string]any{"pullSecretRef": name("pull")}),
		"hosts":         made(t, c, "metal3.io", "v1alpha1", "BareMetalHost", "x", map[string]any{"online": false}),
		"discovery-operator": made(t, c, "metal3.io", "v1alpha1", "BareMetalHostDiscovery", "x", map[string]any{
			"resourceNameTemplate": map[string]any{"prefix": "rack-", "hardwareDetails": "serial-number", "fallback": []any{"hostname"}},
		}),
		"clusters": made(t, c, "hive.openshift.io", "v1", "ClusterDeployment", "x", map[string]any{
			"baseDomain": "example.com", "clusterName": "x", "platform": map[string]any{"hosted": map[string]any{}},
		}),
	}
	// An API server that lists a kind for the first time when it deletes the kind may find its cache not filled, and then tries again only after five minutes.
	_, err = leftovers.List(t.Context(), config)
	require.NoError(t, err)
	for _, set := range slices.Sorted(maps.Keys(objects)) {
		kubectl(t, local.Kubeconfig(), "delete", "--wait", "-k", "deploy/crds/"+set)
		delete(objects, set)
		for other, o := range objects {
			assert.True(t, exists(t, c, o), "deleting the set %s took the %s of the set %s along", set, o.GetKind(), other)
		}
	}
}
