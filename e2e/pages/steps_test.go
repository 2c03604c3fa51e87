// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pages_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	readme        = "README.md"
	operations    = "docs/operations.md"
	deployment    = "docs/deploy-agent-service.md"
	console       = "docs/console.md"
	demonstration = "docs/demo.md"
)

// step is a block of a page, which is found by its first line. It is done, or has a reason why it is not.
type step struct {
	page, first string
	do          func(u user, text string)
	why         string
}

// steps are all blocks of sh and console, and those of yaml that are not manifests to accept as they are, in the order in which they are done.
var steps = []step{
	{page: readme, first: "make demo", why: "TestTheDemoIsLookedAround runs what it builds"},
	{page: readme, first: "kubectl apply --server-side -k deploy/crds/clusters", do: user.install},
	{page: readme, first: "apiVersion: hive.openshift.io/v1", do: user.keepPool},
	{page: readme, first: "apiVersion: hive.openshift.io/v1", do: user.create},
	{page: readme, first: "$ kubectl -n team-a get clusterclaim mine", do: user.enter},
	{page: readme, first: "apiVersion: kustomize.config.k8s.io/v1beta1", do: user.customize},
	{page: readme, first: "make test", why: "they are what runs this test; TestTargetsAreThere finds them"},
	{page: operations, first: "patches:", do: user.allowAPIServers},
	{page: operations, first: "kubectl -n muster-pool-operator set env deployment/pool-operator", do: user.trace},
	{page: operations, first: "kubectl -n team get clusterclaim mine", do: user.findTrace},
	{page: operations, first: "apiVersion: networking.k8s.io/v1", do: user.allowTraces},
	{page: operations, first: "for operator in pool-operator", why: "e2e/upgrade deletes with it what v0.1 installed"},
	{page: operations, first: "hack/backup backup-$(date +%F)", why: "e2e/restore backs up and restores with it"},
	{page: operations, first: "psql --command=", why: "e2e/upgrade restores a dump of a real PostgreSQL with it"},
	{page: operations, first: "hack/restore backup-", why: "e2e/restore restores with it"},

	{page: deployment, first: "kubectl apply --server-side -k deploy/crds/clusters", do: user.installService},
	{page: deployment, first: "configMapGenerator:", do: user.nameSystems},
	{page: deployment, first: "kubectl -n metal create rolebinding agent-service-secrets", why: "agent-service/internal/app runs with this binding, and e2e/render renders the role"},
	{page: deployment, first: "curl -H", why: "the journey TestAgentServiceReviewsTokensWithTheCluster sends such a token"},
	{page: deployment, first: "agent-service --image-url=", why: "agent-service/internal/app starts both processes with these flags"},
	{page: console, first: "kubectl -n muster-agent-service create secret generic agent-service-console", do: user.keepClientSecret},
	{page: console, first: "kubectl create token NAME", do: user.named},
	{page: console, first: "issuer=$(kubectl get --raw", do: user.named},
	{page: console, first: "agent-service --console …", why: "agent-service/internal/console signs in at a service with it"},
	{page: console, first: "agent-service --console --oidc-issuer", why: "agent-service/internal/console signs in at dex with it"},
	{page: console, first: "helm upgrade agent-service", why: "e2e/charts renders these values"},

	{page: "docs/migration/ipam.md", first: "kubectl apply --server-side --force-conflicts", do: user.changeOver},
	{page: "docs/spec/metal3data.md", first: "kubectl apply -k deploy/crds/network-data", do: user.installEverything},
	{page: "docs/spec/machinepool.md", first: "apiVersion: hive.openshift.io/v1", do: user.create},
	{page: "docs/spec/machinepool.md", first: "$ kubectl -n blue get machinepools", do: user.enter},
	{page: "docs/spec/agentreservation.md", first: "$ kubectl -n metal get agentreservations", do: user.enter},
	{page: "docs/spec/agentreservation.md", first: "kubectl -n metal patch agent NAME", do: user.bindAgent},
	{page: "docs/spec/discoveredmachine.md", first: "kubectl -n machines get discoveredmachines", do: user.run},
	{page: "docs/spec/baremetalhostdiscovery.md", first: "kubectl -n machines annotate baremetalhosts", do: user.approveHost},
	{page: "docs/spec/baremetalhostdiscovery.md", first: "hostTemplate:\n  bmc:", do: completes(discovery)},
	{page: "docs/spec/baremetalhostdiscovery.md", first: "hostTemplate:\n  labels:", do: completes(discovery)},
	{page: "docs/spec/clusterpool.md", first: "spec:\n  platform:", do: user.takeNodes},
	{page: "docs/spec/infraenv.md", first: "spec:\n  nodeAddresses:", do: completes(`
apiVersion: agent-install.openshift.io/v1beta1
kind: InfraEnv
metadata: {name: addresses, namespace: metal}
spec: {pullSecretRef: {name: pull}}`)},
	{page: "docs/spec/ippool.md", first: "spec:\n  namePrefix: sites", do: completes(`
apiVersion: ipam.metal3.io/v1alpha1
kind: IPPool
metadata: {name: sites, namespace: metal}`)},
	{page: "docs/spec/clusterdeployment.md", first: "apiVersion: hive.openshift.io/v1", do: user.allowCluster},
	{page: "docs/spec/infraenv.md", first: `$ curl -sH "Authorization`, why: "agent-service/internal/httpapi allocates hosts by this route"},
	{page: "docs/spec/clusterclaim.md", first: "ns=$(kubectl -n pools get clusterclaim mine", why: "it needs a cluster that runs; TestTheDemoIsLookedAround reads the kubeconfig of one"},
	{page: "docs/spec/clusterclaim.md", first: "kubectl --as=system:serviceaccount", why: "pool-operator's TestARestoredPairStaysTogether does it"},
	{page: "docs/spec/ipaddressclaim.md", first: "apiVersion: ipam.cluster.x-k8s.io/v1beta2", why: "a kind of Cluster API, which ipam-operator's tests install"},
	{page: "docs/spec/autoscale-to-hosts.md", first: "apiVersion: cluster.x-k8s.io/v1beta2", do: user.acceptOurs},
	{page: "docs/spec/autoscale-to-hosts.md", first: "apiVersion: kustomize.config.k8s.io/v1beta1", do: user.autoscale},
	{page: "docs/reach-hosted-clusters.md", first: "apiVersion: kustomize.config.k8s.io/v1beta1", do: user.expose},
	{page: "docs/kubectl-muster.md", first: "make kubectl-muster", do: user.installPlugin},
	{page: "docs/migration/pool.md", first: "kubectl get clusterpools -A -o json", do: user.run},
	{page: "docs/migration/pool.md", first: "kubectl get clusterdeployments -A -o json", do: user.labelNamespaces},

	{page: demonstration, first: "export KUBECONFIG=", why: lookedAround},
	{page: demonstration, first: "hack/kubectl -n machines get bmhd,bmh", why: lookedAround},
	{page: demonstration, first: "hack/kubectl create token default", why: lookedAround},
	{page: demonstration, first: "hack/kubectl -n edge get infraenvs", why: lookedAround},
	{page: demonstration, first: "hack/kubectl get clusterpools,clusterclaims", why: lookedAround},
	{page: demonstration, first: "hack/kubectl -n metal get ippools", why: lookedAround},
	{page: demonstration, first: `less "$DEMO"/*.log`, why: lookedAround},

	{page: "CONTRIBUTING.md", first: "make demo", why: "they are what runs this test; TestTargetsAreThere finds them"},
	{page: "docs/control-planes.md", first: "kubectl -n metal wait", why: "agent-service/internal/app brings such a cluster up and reads its kubeconfig"},
	{page: "docs/helm.md", first: "helm install", why: "e2e/charts installs, upgrades and removes with Helm's own library"},
	{page: "docs/inventory.md", first: "ipam-operator probe", why: "ipam-operator/internal/app probes with these flags"},
	{page: "docs/live-image.md", first: "make build live-image", why: "agent-service/boot boots the image that it makes"},
	{page: "docs/live-image.md", first: "journalctl", why: "it is entered on a machine that runs an image of CoreOS"},
	{page: "docs/live-image.md", first: "agent --host-file", why: "agent-service/boot installs the small system, which runs it"},
	{page: "docs/live-image.md", first: "(cd bin/live", why: "agent-service/boot installs that system from a server of its own"},
	{page: "docs/migration/ipam.md", first: "providers:", why: "e2e/move installs with clusterctl and such a file"},
	{page: "docs/node-image.md", first: "make node-image", why: "agent-service/nodeboot boots the image that it makes"},
	{page: "docs/node-templates.md", first: "# losetup", why: "it changes an image of Flatcar, which this machine does not have"},
	{page: "docs/node-templates.md", first: "# truncate", why: "it changes an image of Ubuntu, which this machine does not have"},
	{page: "docs/rack.md", first: `$ kubectl -n "$CLUSTER" patch`, why: "e2e/rack does it with two machines"},
	{page: "docs/release.md", first: "MUSTER_OLD_CHECKOUT=", why: "it is done once for each release"},
	{page: "docs/standalone.md", first: "hack/liveimage ramdisk", why: "make test builds it, and discovery-operator's TestAStandaloneSite boots it"},
}

// lookedAround says where the page of the demo is followed.
const lookedAround = "TestTheDemoIsLookedAround does it"

// discovery is what a template of hosts is a part of.
const discovery = `
apiVersion: metal3.io/v1alpha1
kind: BareMetalHostDiscovery
metadata: {name: templates, namespace: machines}
spec: {resourceNameTemplate: {prefix: rack-, hardwareDetails: serial-number}}`

// completes has the API server try an object with the part of its spec that a page shows.
func completes(object string) func(user, string) {
	return func(u user, text string) {
		u.Helper()
		var whole, part map[string]any
		require.NoError(u, yaml.Unmarshal([]byte(object), &whole))
		require.NoError(u, yaml.Unmarshal([]byte(text), &part))
		if spec, is := part["spec"].(map[string]any); is {
			part = spec
		}
		if whole["spec"] == nil {
			whole["spec"] = map[string]any{}
		}
		maps.Copy(whole["spec"].(map[string]any), part)
		joined, err := yaml.Marshal(whole)
		require.NoError(u, err)
		u.accept(string(joined))
	}
}

// takeNodes has the API server try a pool with nodes. Clusters that run as pods take none: the policy that says so goes first, as its message says.
func (u user) takeNodes(text string) {
	u.run("kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding hosted-nodes.muster.io")
	completes(`
apiVersion: hive.openshift.io/v1
kind: ClusterPool
metadata: {name: nodes, namespace: pools}
spec: {baseDomain: example.com, imageSetRef: {name: v1.37.2}, size: 1}`)(u, text)
}

// allowCluster has the API server try a hosted cluster that no pool makes, in a namespace in which an administrator allows it.
func (u user) allowCluster(text string) {
	u.run("kubectl label namespace blue muster.io/hosted-clusters=true")
	u.accept(text)
}

// install installs pool-operator. The namespaces of the examples are there, as those of a team are.
func (u user) install(text string) {
	u.run(text)
	u.run("kubectl wait --for=condition=Established --timeout=60s crd --all")
	u.run("kubectl -n muster-pool-operator get deployment pool-operator")
	u.run("kubectl create namespace team-a && kubectl create namespace team")
}

// keepPool creates a pool, which makes clusters of an image set that there is.
func (u user) keepPool(text string) {
	u.submit("kubectl apply -f -", text)
	u.run(`kubectl get clusterimageset "$(kubectl -n team-a get clusterpool dev -o jsonpath='{.spec.imageSetRef.name}')"`)
}

// installService makes the Secrets of agent-service and installs it.
func (u user) installService(text string) {
	u.run(text)
	u.run("kubectl -n muster-agent-service get deployment agent-service agent-service-images")
	key := u.sh(`kubectl -n muster-agent-service get secret agent-service-token-key -o go-template='{{index .data "token.key" | base64decode}}'`, "")
	assert.Contains(u, key, "PRIVATE KEY")
}

// changeOver installs ipam-operator where another manager served its kinds, and nothing of the provider beside it.
func (u user) changeOver(text string) {
	u.run(text)
	image := u.sh("kubectl -n muster-ipam-operator get deployment ipam-operator -o jsonpath='{.spec.template.spec.containers[0].image}'", "")
	assert.NotContains(u, image, "muster.local", "an image that is built on the machine of a developer")
	assert.Empty(u, u.sh("kubectl get crd --ignore-not-found -o name baremetalhosts.metal3.io metal3datas.infrastructure.cluster.x-k8s.io", ""), "these are the provider's")
}

// installEverything installs the other operators, and then ipam-operator with network data as the page says.
func (u user) installEverything(text string) {
	u.run("kubectl apply --server-side --force-conflicts -k deploy/overlays/production")
	u.run(text)
	u.run("kubectl wait --for=condition=Established --timeout=60s crd --all")
	args := u.sh("kubectl -n muster-ipam-operator get deployment ipam-operator -o jsonpath='{.spec.template.spec.containers[0].args}'", "")
	assert.Contains(u, args, "--network-data")
}

// customize renders the kustomization of an example and has the API server try it; monitoring needs kinds of others.
func (u user) customize(text string) {
	rendered := u.render(text)
	var taken []string
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		if !strings.Contains(document, "apiVersion: monitoring.coreos.com/") {
			taken = append(taken, document)
		}
	}
	assert.Greater(u, len(taken), 1)
	assert.Contains(u, rendered, "namespace: platform")
	assert.NotContains(u, rendered, "namespace: muster-pool-operator")
	assert.Contains(u, rendered, "grafana_dashboard")
	u.run("kubectl create namespace platform")
	u.sh("kubectl apply --server-side --force-conflicts --dry-run=server -f -", strings.Join(taken, "\n---\n"))
}

// nameSystems adds what the page adds to an overlay.
func (u user) nameSystems(text string) {
	rendered := u.render("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../muster/deploy/overlays/production/agent-service]\n" + text)
	assert.Contains(u, rendered, "https://images.example.com/4.20.img.zst")
	u.sh("kubectl apply --server-side --force-conflicts --dry-run=server -f -", rendered)
}

// allowAPIServers adds what the page adds to the overlay of all operators: each policy that has the usual port of API servers has another one.
func (u user) allowAPIServers(text string) {
	rendered := u.render("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../muster/deploy/overlays/production]\n" + text)
	policies := 0
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		if strings.Contains(document, "\nkind: NetworkPolicy\n") && strings.Contains(document, "port: 6443\n") {
			policies++
			assert.Contains(u, document, "port: 16443\n")
			if strings.Contains(document, "namespace: muster-pool-operator") { // which is installed
				u.sh("kubectl apply --server-side --force-conflicts --dry-run=server -f -", document)
			}
		}
	}
	assert.Equal(u, 5, policies)
}

func (u user) expose(text string) {
	rendered := u.render(text)
	assert.Contains(u, rendered, "value: infra/public")
	assert.Contains(u, rendered, "--hosted-expose=Gateway")
	u.sh("kubectl apply --server-side --force-conflicts --dry-run=server -f -", rendered)
}

func (u user) autoscale(text string) {
	rendered := u.render(text)
	assert.Contains(u, rendered, "machinedeployments/scale")
	u.sh("kubectl apply --server-side --force-conflicts --dry-run=server -f -", rendered)
}

// acceptOurs leaves out the kinds of Cluster API and of its provider.
func (u user) acceptOurs(text string) {
	var ours []string
	for document := range strings.SplitSeq(text, "\n---\n") {
		if !strings.Contains(document, "kind: MachineDeployment") && !strings.Contains(document, "kind: Metal3MachineTemplate") {
			ours = append(ours, document)
		}
	}
	require.Len(u, ours, 1)
	u.accept(ours[0])
}

// trace switches traces on.
func (u user) trace(text string) {
	u.run(text)
	set := u.sh("kubectl -n muster-pool-operator get deployment pool-operator -o jsonpath='{.spec.template.spec.containers[0].env}'", "")
	assert.Contains(u, set, "OTEL_EXPORTER_OTLP_ENDPOINT")
}

// findTrace finds the trace of a claim.
func (u user) findTrace(text string) {
	claim := `{"apiVersion":"hive.openshift.io/v1","kind":"ClusterClaim","metadata":{"namespace":"team","name":"mine"},"spec":{"clusterPoolName":"dev"}}`
	u.create(claim)
	assert.Regexp(u, `^[0-9a-f]{32}$`, strings.TrimSpace(u.sh(text, "")))
}

// allowTraces adds a network policy.
func (u user) allowTraces(text string) {
	u.sh("kubectl apply -f -", text)
	u.run("kubectl -n muster-pool-operator get networkpolicy traces")
}

// keepClientSecret makes the Secret of the console from a file.
func (u user) keepClientSecret(text string) {
	require.NoError(u, os.WriteFile(filepath.Join(u.dir, "client-secret"), []byte("made-up"), 0o600))
	u.run(text)
	u.run("kubectl -n muster-agent-service get secret agent-service-console")
}

// bindAgent binds a machine to a cluster of another namespace.
func (u user) bindAgent(text string) {
	u.create("apiVersion: agent-install.openshift.io/v1beta1\nkind: Agent\nmetadata: {name: one, namespace: metal}\nspec: {approved: true, role: worker}")
	u.run(strings.ReplaceAll(text, "NAME", "one"))
	assert.Equal(u, "blue", u.sh("kubectl -n metal get agent one -o jsonpath='{.spec.clusterDeploymentName.namespace}'", ""))
}

// approveHost approves a host that waits, and no other.
func (u user) approveHost(text string) {
	for name, approval := range map[string]string{"waits": "pending", "other": "approved"} {
		u.create("apiVersion: metal3.io/v1alpha1\nkind: BareMetalHost\nmetadata: {name: " + name + ", namespace: machines, labels: {discovery.metal3.io/approval: " + approval + "}}\nspec: {online: false}")
	}
	u.run(text)
	approved := func(name string) string {
		return u.sh(`kubectl -n machines get baremetalhost `+name+` -o jsonpath='{.metadata.annotations.discovery\.metal3\.io/approved}'`, "")
	}
	assert.Equal(u, "true", approved("waits"))
	assert.Empty(u, approved("other"))
}

// installPlugin installs the program that make has built, elsewhere than for all users of this machine.
func (u user) installPlugin(text string) {
	programs := u.TempDir()
	u.env = append(u.env, "PATH="+programs+":"+pathOf(u.env))
	_, rest, found := strings.Cut(text, "\n") // TestTargetsAreThere finds the target
	require.True(u, found)
	require.Contains(u, rest, "/usr/local/bin")
	assert.Contains(u, u.sh(strings.ReplaceAll(rest, "/usr/local/bin", programs), ""), "must-gather")
	assert.Contains(u, u.sh("kubectl_complete-muster sta", ""), "status")
}

// pathOf is the last PATH of an environment, which wins.
func pathOf(env []string) string {
	path := ""
	for _, variable := range env {
		if value, is := strings.CutPrefix(variable, "PATH="); is {
			path = value
		}
	}
	return path
}

// labelNamespaces labels the namespace of a cluster of a pool.
func (u user) labelNamespaces(text string) {
	cluster, err := json.Marshal(map[string]any{
		"apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": map[string]any{
			"namespace": "legacy", "name": "legacy", "labels": map[string]any{"hive.openshift.io/disable-creation-webhook-for-dr": "true"}, // another operator made it
		},
		"spec": map[string]any{
			"clusterName": "legacy", "baseDomain": "example.com", "platform": map[string]any{"hosted": map[string]any{}},
			"clusterPoolRef": map[string]any{"namespace": "team-a", "poolName": "dev"},
		},
	})
	require.NoError(u, err)
	u.run("kubectl create namespace legacy && kubectl label namespace legacy muster.io/hosted-clusters=true")
	u.create(string(cluster))
	u.run(text)
	assert.Equal(u, "team-a", u.sh(`kubectl get namespace legacy -o jsonpath='{.metadata.labels.hive\.openshift\.io/cluster-pool-namespace}'`, ""))
}
