// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstall_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/estate"
	"github.com/muster-io/muster/e2e/leftovers"
)

// Operators that run are removed one after the other with all objects of their users, and each kind that they share with the last operator that uses it. Each
// finalizes its own objects; the others, and theirs, go on. Nothing is left.
func TestOperatorsAreRemovedUntilNothingIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Bare: true, UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	config, err := environment.Config(local)
	require.NoError(t, err)
	before, err := leftovers.List(t.Context(), config)
	require.NoError(t, err)

	apply(t, config, "deploy/overlays/production")
	c := estate.New(t, local)
	c.StartOperators("")
	for _, operator := range []environment.Operator{environment.DiscoveryOperator(), environment.AgentService()} {
		require.NoError(t, local.StartOperator(t.Context(), operator))
	}
	c.Fill()
	addMachines(c)
	addHostedCluster(c)

	remove(t, local, "discovery-operator", "hosts")
	local.StopOperator("discovery-operator")
	claims := &ipamv1.IPClaimList{}
	require.NoError(t, c.List(t.Context(), claims))
	assert.Len(t, claims.Items, 3, "what others have")
	remove(t, local, "agent-service")
	local.StopOperator("agent-service")
	remove(t, local, "pool-operator", "clusters", "machine-pool")
	local.StopOperator("pool-operator")
	makeUninstall(t, local, "ipam-operator")
	local.StopOperator("ipam-operator")
	require.NoError(t, c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: estate.Team}}))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		now, err := leftovers.List(t.Context(), config)
		require.NoError(collect, err)
		assert.Empty(collect, leftovers.Of(before, now), "objects that are left")
	}, 2*patience, 10*interval)
}

// remove removes operators, or sets of kinds, with their objects.
func remove(t *testing.T, local *environment.Local, names ...string) {
	t.Helper()
	script, err := checkout.Path("hack", "uninstall")
	require.NoError(t, err)
	run(t, local, exec.CommandContext(t.Context(), script, append([]string{"--delete-objects", "--timeout", "120"}, names...)...))
}

// makeUninstall does the same with make, as docs/operations.md says.
func makeUninstall(t *testing.T, local *environment.Local, name string) {
	t.Helper()
	root, err := checkout.Root()
	require.NoError(t, err)
	run(t, local, exec.CommandContext(t.Context(), "make", "-C", root, "uninstall", "WHAT="+name, "FLAGS=--delete-objects --timeout 120"))
}

func run(t *testing.T, local *environment.Local, cmd *exec.Cmd) {
	t.Helper()
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl, "KUBECONFIG="+local.Kubeconfig())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for line := range strings.Lines(string(out)) {
		t.Log(strings.TrimSpace(line))
	}
}

// addMachines has the team discover hosts, and keep an image and a cluster that waits for machines.
func addMachines(c *estate.Cluster) {
	c.Helper()
	discovery := &metal3v1.BareMetalHostDiscovery{ObjectMeta: estate.Named("rack")}
	discovery.Spec.ResourceNameTemplate = metal3v1.ResourceNameTemplate{Prefix: "rack-", HardwareDetails: metal3v1.DetailSerialNumber}
	c.Make(discovery)
	env := c.Rack()
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		hosts := &metal3v1.BareMetalHostList{}
		require.NoError(collect, c.List(c.Context(), hosts))
		assert.Greater(collect, len(hosts.Items), 1, "machines are hosts")
		require.NoError(collect, c.Get(c.Context(), client.ObjectKeyFromObject(env), env))
		assert.NotEmpty(collect, env.Finalizers)
		install := &hiveextv1.AgentClusterInstall{}
		require.NoError(collect, c.Get(c.Context(), client.ObjectKey{Namespace: estate.Team, Name: "metal"}, install))
		assert.NotEmpty(collect, install.Status.DebugInfo.EventsURL)
	}, patience, interval)
}

// addHostedCluster gives the team a cluster that runs, which pool-operator has to end.
func addHostedCluster(c *estate.Cluster) {
	c.Helper()
	c.Make(&hivev1.ClusterPool{ObjectMeta: estate.Named("hosted"), Spec: hivev1.ClusterPoolSpec{
		Size: 1, RunningCount: 1, BaseDomain: "example.com", ImageSetRef: hivev1.ClusterImageSetReference{Name: "release"},
		Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}},
	}})
	pool := &hivev1.ClusterPool{}
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		err := c.Get(c.Context(), client.ObjectKey{Namespace: estate.Team, Name: "hosted"}, pool)
		require.False(collect, apierrors.IsNotFound(err))
		assert.EqualValues(collect, 1, pool.Status.Ready)
	}, 4*patience, interval)
}
