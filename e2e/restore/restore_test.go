// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restore_test moves what users have to a new control plane with hack/backup and hack/restore, as docs/operations.md tells administrators to.
package restore_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/estate"
	"github.com/muster-io/muster/e2e/render"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// newCluster is a control plane with production's manifests.
func newCluster(t *testing.T) *estate.Cluster {
	t.Helper()
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Overlay: "deploy/overlays/production", UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	config, err := environment.Read(local.Kubeconfig())
	require.NoError(t, err)
	kinds, err := render.Directory("deploy/crds/network-data")
	require.NoError(t, err)
	require.NoError(t, render.Apply(t.Context(), config, kinds))
	return estate.New(t, local)
}

// run runs a script of hack for the cluster.
func run(c *estate.Cluster, script string, args ...string) {
	c.Helper()
	kubectl, err := environment.Kubectl(c.Context())
	require.NoError(c, err)
	runWith(c, kubectl, script, args...)
}

// staleDiscovery is a kubectl of a cluster in which the server of an API is away, such as metrics-server: "kubectl api-resources" lists all others, and fails.
func staleDiscovery(c *estate.Cluster) string {
	c.Helper()
	kubectl, err := environment.Kubectl(c.Context())
	require.NoError(c, err)
	program := filepath.Join(c.TempDir(), "kubectl")
	script := "#!/bin/sh\ncase \"$*\" in (api-resources*) '" + kubectl + "' \"$@\"; exit 1;; esac\nexec '" + kubectl + "' \"$@\"\n"
	require.NoError(c, os.WriteFile(program, []byte(script), 0o700))
	return program
}

// runWith runs it with a kubectl.
func runWith(c *estate.Cluster, kubectl, script string, args ...string) {
	c.Helper()
	out, err := output(c, kubectl, script, args...)
	require.NoError(c, err, "%s", out)
}

// output is what it prints.
func output(c *estate.Cluster, kubectl, script string, args ...string) (string, error) {
	c.Helper()
	path, err := checkout.Path("hack", script)
	require.NoError(c, err)
	cmd := exec.CommandContext(c.Context(), path, args...)
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl, "KUBECONFIG="+c.Local.Kubeconfig())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A control plane is lost. On a new one every claim has the cluster and the address that it had, and nothing is made anew.
func TestWhatUsersHaveIsRestoredFromABackup(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	_, err := exec.LookPath("jq")
	needtest.Part(t, err == nil, "jq is not installed: install the package jq of Debian")
	lost := newCluster(t)
	lost.StartOperators("")
	lost.Fill()
	details := &metal3v1.HardwareData{ObjectMeta: estate.Named("node-1")}
	details.Spec.HardwareDetails = &metal3v1.HardwareDetails{Hostname: "node-1"}
	lost.Make(details)
	manifests := &corev1.ConfigMap{ObjectMeta: estate.Named("manifests"), Data: map[string]string{"network.yaml": "kind: Network"}}
	lost.Make(manifests)
	template := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": infrav1.GroupVersion.String(), "kind": infrav1.Metal3DataTemplateKind,
		"spec": map[string]any{"clusterName": "metal", "metaData": map[string]any{"strings": []any{map[string]any{"key": "site", "value": "one"}}}},
	}}
	template.SetNamespace(estate.Team)
	template.SetName("nodes")
	lost.Make(template)
	ofData := &ipamv1.IPClaim{ObjectMeta: estate.Named("nodes-0-rack")}
	ofData.Spec.Pool.Name, ofData.Finalizers = "rack", []string{infrav1.DataFinalizer}
	lost.Make(ofData)
	var before estate.Estate
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		before = lost.Read(c)
		assert.Len(c, before.Addresses, 4)
	}, estate.Patience, estate.Interval)
	require.Len(t, before.Clusters, 2)
	lost.StopOperators()
	dir := filepath.Join(t.TempDir(), "backup")
	runWith(lost, staleDiscovery(lost), "backup", dir)

	restored := newCluster(t)
	run(restored, "restore", dir)
	run(restored, "restore", dir) // an interrupted one is run again
	restored.StartOperators("")
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, before, restored.Read(c)) }, estate.Patience, estate.Interval)

	require.NoError(t, restored.Get(t.Context(), client.ObjectKeyFromObject(details), details))
	assert.Equal(t, "node-1", details.Spec.HardwareDetails.Hostname)
	require.NoError(t, restored.Get(t.Context(), client.ObjectKeyFromObject(manifests), manifests), "an AgentClusterInstall may name it")
	assert.Equal(t, "kind: Network", manifests.Data["network.yaml"])

	require.NoError(t, restored.Get(t.Context(), client.ObjectKeyFromObject(template), template))
	require.NoError(t, restored.Get(t.Context(), client.ObjectKeyFromObject(ofData), ofData))
	assert.NotContains(t, ofData.Finalizers, infrav1.DataFinalizer, "data that is not restored would have to remove it")

	// The operators are at work: a new claim gets what is free.
	another := &ipamv1.IPClaim{ObjectMeta: estate.Named("another")}
	another.Spec.Pool.Name = "rack"
	restored.Make(another)
	restored.Make(&hivev1.ClusterClaim{ObjectMeta: estate.Named("second"), Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "dev"}})
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, restored.Get(t.Context(), client.ObjectKeyFromObject(another), another))
		require.NotNil(c, another.Status.Address)
		assert.NotContains(c, before.Addresses, another.Status.Address.Name)
		claim := &hivev1.ClusterClaim{}
		require.NoError(c, restored.Get(t.Context(), client.ObjectKey{Namespace: estate.Team, Name: "second"}, claim))
		require.NotEmpty(c, claim.Spec.Namespace)
		assert.NotEqual(c, before.Claims["mine"], claim.Spec.Namespace)
		assert.Contains(c, before.Clusters, claim.Spec.Namespace+"/"+claim.Spec.Namespace)
	}, estate.Patience, estate.Interval)
	require.NoError(t, restored.Local.Failed())
}

// An object that was stored before a rule was made, which refuses it now, is named, and keeps nothing else from coming back. Corrected, it comes back too.
func TestARefusedObjectKeepsNothingElseFromBeingRestored(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	_, err := exec.LookPath("jq")
	needtest.Part(t, err == nil, "jq is not installed: install the package jq of Debian")
	lost := newCluster(t)
	rule := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "baremetalhost-image.muster.io"}}
	require.NoError(t, lost.Delete(t.Context(), rule))
	lost.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: estate.Team}})
	old := &metal3v1.BareMetalHost{ObjectMeta: estate.Named("a-former-one")}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // the API server takes a moment to see that the rule is gone
		old.Spec.Image = &metal3v1.Image{URL: "http://images.example.com/system.img"}
		require.NoError(c, client.IgnoreAlreadyExists(lost.Create(t.Context(), old)))
	}, estate.Patience, estate.Interval)
	lost.Make(&metal3v1.BareMetalHost{ObjectMeta: estate.Named("node-1")})
	for _, host := range []string{"a-former-one", "node-1"} {
		require.NoError(t, lost.Status().Patch(t.Context(), &metal3v1.BareMetalHost{ObjectMeta: estate.Named(host)}, client.RawPatch(types.MergePatchType,
			[]byte(`{"status":{"operationalStatus":"OK","errorCount":0,"errorMessage":"","poweredOn":true,"provisioning":{"state":"provisioned","ID":"node","image":{"url":""}}}}`))))
	}
	env := &agentv1.InfraEnv{ObjectMeta: estate.Named("rack")}
	env.Spec.PullSecretRef.Name = "pull"
	lost.Make(env)
	const discovery = "muster-discovery-operator"
	reserved := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: discovery, Name: "boot-mac-52-54-00-00-00-01", Labels: map[string]string{metal3v1.ReservationLabel: "true"},
		Annotations: map[string]string{metal3v1.HostAnnotation: estate.Team + "/node-1", metal3v1.NodeAnnotation: "node", metal3v1.HostUIDAnnotation: "of-before"},
	}}
	ignored := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: discovery, Name: "boot-mac-52-54-00-00-00-02", Labels: map[string]string{metal3v1.ReservationLabel: "true", metal3v1.IgnoredLabel: "true"},
	}}
	lost.Make(reserved)
	lost.Make(ignored)
	lost.Make(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: discovery, Name: "sh.helm.release.v1.discovery-operator.v1"}})
	dir := filepath.Join(t.TempDir(), "backup")
	run(lost, "backup", dir)

	restored := newCluster(t)
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	out, err := output(restored, kubectl, "restore", dir)
	require.Error(t, err, "%s", out)
	assert.Contains(t, out, "the image has no checksum")
	assert.Contains(t, out, "is not restored, and all else is")
	host := &metal3v1.BareMetalHost{}
	require.NoError(t, restored.Get(t.Context(), client.ObjectKey{Namespace: estate.Team, Name: "node-1"}, host), "%s", out)
	assert.Equal(t, metal3v1.StateProvisioned, host.Status.Provisioning.State)
	require.NoError(t, restored.Get(t.Context(), client.ObjectKeyFromObject(env), env), "%s", out)
	lease := &coordinationv1.Lease{}
	require.NoError(t, restored.Get(t.Context(), client.ObjectKeyFromObject(reserved), lease), "a host without it may not have its node: %s", out)
	assert.Equal(t, map[string]string{metal3v1.HostAnnotation: estate.Team + "/node-1", metal3v1.NodeAnnotation: "node"}, lease.Annotations, "the host has another UID")
	lease = &coordinationv1.Lease{}
	require.NoError(t, restored.Get(t.Context(), client.ObjectKeyFromObject(ignored), lease), "the machine would be a host again: %s", out)
	assert.Equal(t, "true", lease.Labels[metal3v1.IgnoredLabel])
	helm := restored.Get(t.Context(), client.ObjectKey{Namespace: discovery, Name: "sh.helm.release.v1.discovery-operator.v1"}, &corev1.Secret{})
	assert.True(t, apierrors.IsNotFound(helm), "Secrets of operators belong to their installation: %v", helm)

	files, err := filepath.Glob(filepath.Join(dir, "*-baremetalhosts.metal3.io.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	content, err := os.ReadFile(files[0])
	require.NoError(t, err)
	content = bytes.ReplaceAll(content, []byte(`"url": "http://images.example.com/system.img"`), []byte(`"url": "http://images.example.com/system.iso", "format": "live-iso"`))
	require.NoError(t, os.WriteFile(files[0], content, 0o600))
	run(restored, "restore", dir)
	require.NoError(t, restored.Get(t.Context(), client.ObjectKey{Namespace: estate.Team, Name: "a-former-one"}, host))
	assert.Equal(t, metal3v1.StateProvisioned, host.Status.Provisioning.State)
}
