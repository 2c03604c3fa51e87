// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uninstall_test removes operators from a real API server with hack/uninstall, as docs/operations.md tells users to.
package uninstall_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/environment/environmenttest"
	"github.com/muster-io/muster/e2e/render"
)

// cluster is a control plane without operators.
type cluster struct {
	client.Client
	plane *environment.ControlPlane
}

// empty starts a cluster without anything of Muster.
func empty(t *testing.T) (cluster, *rest.Config) {
	t.Helper()
	plane, config := environmenttest.ControlPlane(t)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	return cluster{c, plane}, config
}

// start starts one with the objects of ipam-operator and no operator: what a user has who deleted the operator first.
func start(t *testing.T) cluster {
	t.Helper()
	c, config := empty(t)
	for _, dir := range []string{"deploy/crds/ipam-operator", "deploy/crds/hosts", "deploy/overlays/production/ipam-operator"} {
		apply(t, config, dir)
	}
	claim := object("ipam.metal3.io", "v1alpha1", "IPClaim")
	claim.SetNamespace("default")
	claim.SetName("held")
	claim.SetFinalizers([]string{"ipclaim.ipam.metal3.io"})
	claim.Object["spec"] = map[string]any{"pool": map[string]any{"name": "pool"}}
	require.NoError(t, c.Create(t.Context(), claim))
	return c
}

func object(group, version, kind string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return out
}

// run runs hack/uninstall for the cluster and returns what it printed.
func (c cluster) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	return c.runWith(t, kubectl, args...)
}

// runWith does so with a kubectl.
func (c cluster) runWith(t *testing.T, kubectl string, args ...string) (string, error) {
	t.Helper()
	script, err := checkout.Path("hack", "uninstall")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl, "KUBECONFIG="+c.plane.Kubeconfig())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, ctx.Err(), "it does not end")
	return string(out), err
}

// selecting is a selector of one label.
func selecting(label, value string) map[string]any {
	return map[string]any{"matchLabels": map[string]any{label: value}}
}

func (c cluster) has(t *testing.T, o *unstructured.Unstructured, namespace, name string) bool {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	require.NoError(t, client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

func TestAnOperatorGoesAndItsObjectsStay(t *testing.T) {
	c := start(t)
	former := object("policy", "v1", "PodDisruptionBudget") // an upgrade from v0.1 leaves it
	former.SetNamespace("muster-ipam-operator")
	former.SetName("operator")
	former.Object["spec"] = map[string]any{"minAvailable": int64(1), "selector": selecting("app.kubernetes.io/component", "operator")}
	require.NoError(t, c.Create(t.Context(), former))
	images := object("networking.k8s.io", "v1", "NetworkPolicy")
	images.SetNamespace("muster-ipam-operator")
	images.SetName("images")
	images.Object["spec"] = map[string]any{"podSelector": selecting("app.kubernetes.io/component", "images")}
	require.NoError(t, c.Create(t.Context(), images))
	_, err := c.run(t, "ipam-operator")
	require.NoError(t, err)
	assert.False(t, c.has(t, object("rbac.authorization.k8s.io", "v1", "ClusterRole"), "", "ipam-operator"))
	assert.False(t, c.has(t, former, "muster-ipam-operator", "operator"), "the next installation would have two budgets for each pod")
	assert.False(t, c.has(t, images, "muster-ipam-operator", "images"))
	claim := object("ipam.metal3.io", "v1alpha1", "IPClaim")
	assert.True(t, c.has(t, claim, "default", "held"))
	assert.Nil(t, claim.GetDeletionTimestamp())
}

// What users put beside an operator stays with the objects: a Secret such as the key of agent-service's tokens, or its database on a volume, cannot be made again. It
// goes where the objects are deleted.
func TestWhatUsersPutBesideAnOperatorStays(t *testing.T) {
	c, config := empty(t)
	for _, dir := range []string{"deploy/crds/agent-service", "deploy/overlays/kind/agent-service"} {
		apply(t, config, dir)
	}
	const namespace = "muster-agent-service"
	key, volume, deployment := object("", "v1", "Secret"), object("", "v1", "PersistentVolumeClaim"), object("apps", "v1", "Deployment")
	key.SetNamespace(namespace)
	key.SetName("agent-service-token-key")
	require.NoError(t, c.Create(t.Context(), key))
	env := object("agent-install.openshift.io", "v1beta1", "InfraEnv")
	env.SetNamespace(namespace)
	env.SetName("rack")
	env.Object["spec"] = map[string]any{"pullSecretRef": map[string]any{"name": "pull"}}
	require.NoError(t, c.Create(t.Context(), env))
	policy, budget := object("networking.k8s.io", "v1", "NetworkPolicy"), object("policy", "v1", "PodDisruptionBudget")
	policy.Object["spec"] = map[string]any{"podSelector": selecting("cnpg.io/cluster", "database")}
	budget.Object["spec"] = map[string]any{"minAvailable": int64(1), "selector": selecting("cnpg.io/cluster", "database")}
	for _, o := range []*unstructured.Unstructured{policy, budget} { // named as an object of v0.1 was
		o.SetNamespace(namespace)
		o.SetName("database")
		require.NoError(t, c.Create(t.Context(), o))
	}

	out, err := c.run(t, "--overlay", "kind", "agent-service")
	require.NoError(t, err)
	assert.Contains(t, out, "the namespace "+namespace+" stays")
	assert.False(t, c.has(t, deployment, namespace, "agent-service"))
	for _, o := range []*unstructured.Unstructured{key, env, volume, policy, budget} {
		name := o.GetName()
		if name == "" {
			name = "agent-service"
		}
		assert.True(t, c.has(t, o, namespace, name), "the %s stays", o.GetKind())
		assert.Nil(t, o.GetDeletionTimestamp(), o.GetKind())
	}
	of := object("", "v1", "Namespace")
	require.True(t, c.has(t, of, "", namespace))
	assert.Nil(t, of.GetDeletionTimestamp())

	_, err = c.run(t, "--overlay", "kind", "--delete-objects", "agent-service")
	require.NoError(t, err)
	if c.has(t, of, "", namespace) {
		assert.NotNil(t, of.GetDeletionTimestamp())
	}
}

// An operator may run in a namespace that users had before. It is removed from there, and the namespace stays with all that is theirs.
func TestAnOperatorGoesFromAnotherNamespace(t *testing.T) {
	c, config := empty(t)
	const namespace = "platform"
	platform, key := object("", "v1", "Namespace"), object("", "v1", "Secret")
	platform.SetName(namespace)
	require.NoError(t, c.Create(t.Context(), platform))
	key.SetNamespace(namespace)
	key.SetName("agent-service-token-key")
	require.NoError(t, c.Create(t.Context(), key))
	for _, flags := range [][]string{nil, {"--delete-objects"}} {
		apply(t, config, "deploy/crds/agent-service")
		objects, err := render.Overlay{
			Namespace: namespace, Resources: []string{"overlays/production/agent-service"}, Components: []string{"components/existing-namespace"},
		}.Render()
		require.NoError(t, err)
		require.NoError(t, render.Apply(t.Context(), config, objects))

		out, err := c.run(t, append(flags, "agent-service")...)
		require.NoError(t, err)
		assert.Contains(t, out, "the namespace platform stays")
		for _, o := range objects {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			require.NoError(t, client.IgnoreNotFound(err))
			assert.True(t, apierrors.IsNotFound(err) || o.GetDeletionTimestamp() != nil, "%s %s/%s is left", o.GetKind(), o.GetNamespace(), o.GetName())
		}
		require.True(t, c.has(t, platform, "", namespace))
		assert.Nil(t, platform.GetDeletionTimestamp())
		assert.True(t, c.has(t, key, namespace, key.GetName()))
	}
}

// Without its operator an object with a finalizer stays: the user is told which, and decides; then nothing is left.
func TestObjectsWithoutTheirOperatorAreNamedAndForced(t *testing.T) {
	c := start(t)
	out, err := c.run(t, "--delete-objects", "--timeout", "1", "ipam-operator")
	require.Error(t, err)
	assert.Contains(t, out, "ipclaims.ipam.metal3.io default/held")
	assert.Contains(t, out, "--force")
	assert.True(t, c.has(t, object("apps", "v1", "Deployment"), "muster-ipam-operator", "ipam-operator"), "the operator that has to finalize stays")

	_, err = c.run(t, "--delete-objects", "--force", "--timeout", "1", "ipam-operator")
	require.NoError(t, err)
	definitions := &metav1.PartialObjectMetadataList{}
	definitions.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	require.NoError(t, c.List(t.Context(), definitions))
	var left []string
	for _, d := range definitions.Items {
		left = append(left, d.Name)
	}
	assert.ElementsMatch(t, []string{"baremetalhosts.metal3.io", "hardwaredata.metal3.io"}, left, "only the kinds of other sets stay")
	assert.False(t, c.has(t, object("rbac.authorization.k8s.io", "v1", "ClusterRole"), "", "ipam-operator"))

	_, err = c.run(t, "--delete-objects", "ipam-operator")
	require.NoError(t, err, "again is fine")
}

// A finalizer may be protected, as by a policy of the site. The user is told by what, and the operator stays.
func TestForceEndsWhereAFinalizerIsRefused(t *testing.T) {
	c := start(t)
	config, err := environment.Read(c.plane.Kubeconfig())
	require.NoError(t, err)
	policy, binding := object("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"), object("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding")
	policy.SetName("addresses.example.com")
	policy.Object["spec"] = map[string]any{
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{"ipam.metal3.io"}, "apiVersions": []any{"*"}, "operations": []any{"UPDATE"}, "resources": []any{"ipclaims"},
		}}},
		"validations": []any{map[string]any{"expression": "false", "message": "addresses are protected by the network team"}},
	}
	binding.SetName(policy.GetName())
	binding.Object["spec"] = map[string]any{"policyName": policy.GetName(), "validationActions": []any{"Deny"}}
	require.NoError(t, render.Apply(t.Context(), config, []*unstructured.Unstructured{policy, binding}))
	claim := object("ipam.metal3.io", "v1alpha1", "IPClaim")
	require.True(t, c.has(t, claim, "default", "held"))
	require.Eventually(t, func() bool {
		return c.Patch(t.Context(), claim.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll) != nil
	}, patience, interval, "the policy is in force")

	out, err := c.run(t, "--delete-objects", "--force", "--timeout", "1", "ipam-operator")
	require.Error(t, err)
	assert.Contains(t, out, "addresses are protected by the network team")
	assert.Contains(t, out, "  ipclaims.ipam.metal3.io default/held\n")
	assert.True(t, c.has(t, object("apps", "v1", "Deployment"), "muster-ipam-operator", "ipam-operator"))
}

// A GitOps tool that goes on makes objects again. They are not taken for objects that the operator does not finalize.
func TestObjectsThatAreMadeAgainAreNamed(t *testing.T) {
	c := start(t)
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	dir := t.TempDir()
	claim, program := filepath.Join(dir, "claim.yaml"), filepath.Join(dir, "kubectl")
	require.NoError(t, os.WriteFile(claim, []byte("apiVersion: ipam.metal3.io/v1alpha1\nkind: IPClaim\nmetadata: {name: declared, namespace: default}\nspec: {pool: {name: pool}}\n"), 0o600))
	script := "#!/bin/sh\ncase \"$*\" in (get*--all-namespaces*name) '" + kubectl + "' create -f '" + claim + "' >/dev/null 2>&1;; esac\nexec '" + kubectl + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	for _, flags := range [][]string{nil, {"--force"}} {
		out, err := c.runWith(t, program, append(flags, "--delete-objects", "--timeout", "1", "ipam-operator")...)
		require.Error(t, err)
		assert.Contains(t, out, "ipclaims.ipam.metal3.io default/declared, which was made again")
		assert.NotContains(t, out, "default/held, which")
	}
}

// Where it cannot be known which kinds an operator has, its objects are not taken for none.
func TestNothingIsRemovedWithoutTheManifestsOfKinds(t *testing.T) {
	c := start(t)
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "kubectl")
	script := "#!/bin/sh\ncase \"$*\" in (kustomize*/deploy/crds/*) echo 'no such directory' >&2; exit 1;; esac\nexec '" + kubectl + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	out, err := c.runWith(t, program, "--delete-objects", "--timeout", "1", "ipam-operator")
	require.Error(t, err)
	assert.Contains(t, out, "no such directory")
	assert.True(t, c.has(t, object("apps", "v1", "Deployment"), "muster-ipam-operator", "ipam-operator"))
}

// An API server that does not answer, when it is asked what is left, is none where nothing is left.
func TestNothingIsRemovedWhereItCannotBeReadWhatIsLeft(t *testing.T) {
	c := start(t)
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	for what, failing := range map[string]string{"objects": "get*--all-namespaces*name", "kinds": "get?crd*"} {
		t.Run(what, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "kubectl")
			script := "#!/bin/sh\ncase \"$*\" in (" + failing + ") exit 1;; esac\nexec '" + kubectl + "' \"$@\"\n"
			require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
			_, err := c.runWith(t, program, "--delete-objects", "--timeout", "1", "ipam-operator")
			require.Error(t, err)
			assert.True(t, c.has(t, object("ipam.metal3.io", "v1alpha1", "IPClaim"), "default", "held"))
			assert.True(t, c.has(t, object("apps", "v1", "Deployment"), "muster-ipam-operator", "ipam-operator"))
			assert.True(t, c.has(t, object("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), "", "ippools.ipam.metal3.io"))
		})
	}
}

// Objects of kinds that others share stay. The user is told which of them need the operator that goes, whether or not objects are deleted.
func TestObjectsThatNeedTheOperatorAreCounted(t *testing.T) {
	c := start(t)
	config, err := environment.Read(c.plane.Kubeconfig())
	require.NoError(t, err)
	for _, set := range []string{"machine-pool", "network-data"} {
		apply(t, config, "deploy/crds/"+set)
	}
	addressClaims(t, config)
	hold := func(group, version, kind, name, finalizer string, spec map[string]any) *unstructured.Unstructured {
		o := object(group, version, kind)
		o.SetNamespace("default")
		o.SetName(name)
		o.SetFinalizers([]string{finalizer})
		if spec != nil {
			o.Object["spec"] = spec
		}
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			require.NoError(collect, client.IgnoreAlreadyExists(c.Create(t.Context(), o.DeepCopy())))
		}, patience, interval)
		return o
	}
	host := hold("metal3.io", "v1alpha1", "BareMetalHost", "held", "discovery.metal3.io/node", nil)
	managed := hold("metal3.io", "v1alpha1", "BareMetalHost", "managed", "baremetalhost.metal3.io", nil)
	require.NoError(t, c.Status().Patch(t.Context(), managed, client.RawPatch(types.MergePatchType, []byte(`{"status":{"operationalStatus":"OK","errorCount":0,"errorMessage":"",
		"poweredOn":true,"provisioning":{"state":"available","ID":"node","image":{"url":""}},
		"conditions":[{"type":"HandedOver","status":"False","reason":"ManagedHere","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`))))
	hold("metal3.io", "v1alpha1", "BareMetalHost", "another-operators", "baremetalhost.metal3.io", nil)
	hold("metal3.io", "v1alpha1", "BareMetalHost", "with-an-agent", "bmac.agent-install.openshift.io/deprovision", nil)
	hold("hive.openshift.io", "v1", "MachinePool", "c-workers", "hive.openshift.io/machine-pool-release", map[string]any{
		"name": "workers", "clusterDeploymentRef": map[string]any{"name": "c"}, "platform": map[string]any{"agentBareMetal": map[string]any{"agentSelector": map[string]any{}}},
	})
	hold("ipam.cluster.x-k8s.io", "v1beta1", "IPAddressClaim", "machine", "ipam.metal3.io/ipaddressclaim", nil)
	hold("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3DataClaim", "machine", "metal3dataclaim.infrastructure.cluster.x-k8s.io",
		map[string]any{"template": map[string]any{"name": "t"}})

	for _, flags := range [][]string{nil, {"--delete-objects"}} {
		out, err := c.run(t, append(flags, "discovery-operator")...)
		require.NoError(t, err)
		assert.Contains(t, out, "2 baremetalhosts.metal3.io stay, and cannot be deleted without discovery-operator")
		out, err = c.run(t, append(flags, "agent-service")...)
		require.NoError(t, err)
		assert.Contains(t, out, "1 baremetalhosts.metal3.io stay, and cannot be deleted without agent-service")
		assert.Contains(t, out, "1 machinepools.hive.openshift.io stay, and cannot be deleted without agent-service")
	}
	out, err := c.run(t, "ipam-operator")
	require.NoError(t, err)
	assert.NotContains(t, out, "baremetalhosts")
	assert.Contains(t, out, "1 ipaddressclaims.ipam.cluster.x-k8s.io stay, and cannot be deleted without ipam-operator")
	assert.Contains(t, out, "1 metal3dataclaims.infrastructure.cluster.x-k8s.io stay, and cannot be deleted without ipam-operator")
	assert.True(t, c.has(t, host, "default", "held"))
	assert.Nil(t, host.GetDeletionTimestamp())
}

// What another system brought is not deleted with an operator, also where its set is named: with the definition would go the machines of all.
func TestKindsOfAnotherSystemStay(t *testing.T) {
	c := start(t)
	config, err := environment.Read(c.plane.Kubeconfig())
	require.NoError(t, err)
	apply(t, config, "deploy/crds/discovery-operator")
	definition := object("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
	definition.SetName("baremetalhosts.metal3.io")
	label := func(value string) {
		require.NoError(t, c.Patch(t.Context(), definition, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"muster.io/crds":`+value+`}}}`))))
	}
	label("null")
	host := made(t, c, "metal3.io", "v1alpha1", "BareMetalHost", "of-another", map[string]any{"online": true})
	out, err := c.run(t, "--delete-objects", "--timeout", "1", "discovery-operator", "hosts")
	require.NoError(t, err)
	assert.Contains(t, out, "baremetalhosts.metal3.io stay, with the definition: another system brought it")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(host), host))
	assert.Nil(t, host.GetDeletionTimestamp())
	assert.False(t, c.has(t, object("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), "", "baremetalhostdiscoveries.metal3.io"))

	label(`"hosts"`)
	_, err = c.run(t, "--delete-objects", "--timeout", "1", "discovery-operator", "hosts")
	require.NoError(t, err)
	assert.True(t, isGone(t, c, host))
}

// addressClaims serves claims of addresses of Cluster API, whose kind is its own.
func addressClaims(t *testing.T, config *rest.Config) {
	t.Helper()
	require.NoError(t, render.Apply(t.Context(), config, []*unstructured.Unstructured{definition("ipam.cluster.x-k8s.io", "v1beta1", "ipaddressclaims", "IPAddressClaim")}))
}

func TestAnUnknownOperatorIsRefused(t *testing.T) {
	script, err := checkout.Path("hack", "uninstall")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), script, "pool").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "there is no operator pool")
}

// Without ipam-operator nothing converts Metal3DataTemplates. They are asked for as they are stored, so that they can be deleted and forced.
func TestTemplatesThatNothingConvertsAreForced(t *testing.T) {
	c := start(t)
	config, err := environment.Read(c.plane.Kubeconfig())
	require.NoError(t, err)
	apply(t, config, "deploy/crds/network-data")
	apply(t, config, "deploy/overlays/standalone/ipam-operator")
	template := made(t, c, "infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3DataTemplate", "workers", map[string]any{"clusterName": "c"})
	template.SetFinalizers([]string{"metal3datatemplate.infrastructure.cluster.x-k8s.io"})
	template.SetResourceVersion("")
	require.NoError(t, c.Patch(t.Context(), template, client.Merge))

	out, err := c.run(t, "--overlay", "standalone", "--delete-objects", "--timeout", "1", "ipam-operator", "network-data")
	require.Error(t, err)
	assert.Contains(t, out, "metal3datatemplates.v1beta1.infrastructure.cluster.x-k8s.io default/workers")
	assert.Contains(t, out, "--force")
	_, err = c.run(t, "--overlay", "standalone", "--delete-objects", "--force", "--timeout", "1", "ipam-operator", "network-data")
	require.NoError(t, err)
	assert.False(t, c.has(t, object("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), "", "metal3datatemplates.infrastructure.cluster.x-k8s.io"))
}

// The operator goes and templates stay: they are served as they are stored, and what lists all kinds, as the deletion of a namespace does, goes on.
func TestTemplatesStayReadableWithoutTheirOperator(t *testing.T) {
	c := start(t)
	config, err := environment.Read(c.plane.Kubeconfig())
	require.NoError(t, err)
	apply(t, config, "deploy/crds/network-data")
	apply(t, config, "deploy/overlays/standalone/ipam-operator")
	template := made(t, c, "infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3DataTemplate", "workers", map[string]any{"clusterName": "c"})
	team := object("", "v1", "Namespace")
	team.SetName("team")
	require.NoError(t, c.Create(t.Context(), team.DeepCopy()))
	theirs := object("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3DataTemplate")
	theirs.SetNamespace("team")
	theirs.SetName("workers")
	theirs.Object["spec"] = template.Object["spec"]
	require.NoError(t, c.Create(t.Context(), theirs))

	_, err = c.run(t, "--overlay", "standalone", "ipam-operator")
	require.NoError(t, err)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(template), template))
	require.NoError(t, c.Delete(t.Context(), team.DeepCopy()))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.True(collect, isGone(t, c, team))
	}, patience, interval)

	apply(t, config, "deploy/crds/network-data")
	definition := object("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
	require.True(t, c.has(t, definition, "", "metal3datatemplates.infrastructure.cluster.x-k8s.io"))
	strategy, _, err := unstructured.NestedString(definition.Object, "spec", "conversion", "strategy")
	require.NoError(t, err)
	assert.Equal(t, "Webhook", strategy, "a new installation converts again")
}
