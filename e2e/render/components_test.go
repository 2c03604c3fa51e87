// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/e2e/render"
)

// with renders a directory of deploy with a component added to it, as a user's own overlay would.
func with(t *testing.T, directory, component string) []*unstructured.Unstructured {
	t.Helper()
	return rendered(t, render.Overlay{Resources: []string{directory}, Components: []string{"components/" + component}})
}

// rendered renders an overlay of a user.
func rendered(t *testing.T, o render.Overlay) []*unstructured.Unstructured {
	t.Helper()
	objects, err := o.Render()
	require.NoError(t, err)
	return objects
}

// With autoscaling of sets of machines the operator may write the scale of sets, and nothing else in addition.
func TestAutoscalingMayWriteScalesOnly(t *testing.T) {
	for _, directory := range []string{"base/discovery-operator", "overlays/production/discovery-operator", "overlays/standalone/discovery-operator"} {
		t.Run(directory, func(t *testing.T) {
			objects := with(t, directory, "autoscale-to-hosts")
			deployments := ofKind[appsv1.Deployment](t, objects, "Deployment")
			require.Len(t, deployments, 1)
			assert.Contains(t, deployments[0].Spec.Template.Spec.Containers[0].Args, "--autoscale-to-hosts=true")
			without := mustRender(t, "deploy/"+directory)
			assert.NotContains(t, ofKind[appsv1.Deployment](t, without, "Deployment")[0].Spec.Template.Spec.Containers[0].Args, "--autoscale-to-hosts=true")
			role := added(t, objects, without, "discovery-operator")
			written := map[string][]string{}
			for _, rule := range role.Rules {
				for _, verb := range rule.Verbs {
					if verb != "list" && verb != "watch" {
						written[verb] = append(written[verb], rule.Resources...)
					}
				}
			}
			assert.Equal(t, map[string][]string{"update": {"machinedeployments/scale", "machinesets/scale"}}, written)
		})
	}
}

// added is the one cluster role that a component brings, with nothing else but what is named; it checks that it is bound to the account of the pods.
func added(t *testing.T, objects, without []*unstructured.Unstructured, operator string, besides ...string) *rbacv1.ClusterRole {
	t.Helper()
	known := map[string]bool{}
	for _, name := range names(without) {
		known[name] = true
	}
	var role *rbacv1.ClusterRole
	var bound bool
	for _, object := range objects {
		if known[names([]*unstructured.Unstructured{object})[0]] || slices.Contains(besides, object.GetKind()+" "+object.GetName()) {
			continue
		}
		switch object.GetKind() {
		case "ClusterRole":
			require.Nil(t, role, "one role")
			role = decode[rbacv1.ClusterRole](t, object)
		case "ClusterRoleBinding":
			binding := decode[rbacv1.ClusterRoleBinding](t, object)
			require.NotNil(t, role)
			assert.Equal(t, role.Name, binding.RoleRef.Name)
			assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: operator, Namespace: "muster-" + operator}}, binding.Subjects)
			bound = true
		default:
			assert.Fail(t, "the component brings what is not named", "%s %s", object.GetKind(), object.GetName())
		}
	}
	require.NotNil(t, role)
	assert.True(t, bound)
	return role
}

// The base installs where MutatingAdmissionPolicy is not served; the component brings it and nothing else.
func TestMutatingPoliciesAreAComponent(t *testing.T) {
	const directory = "overlays/production/ipam-operator"
	without := mustRender(t, "deploy/"+directory)
	for _, object := range without {
		assert.NotContains(t, object.GetKind(), "MutatingAdmissionPolicy", object.GetName())
	}
	assert.ElementsMatch(t, append(names(without),
		"MutatingAdmissionPolicy /ipclaim-finalizer.muster.io", "MutatingAdmissionPolicyBinding /ipclaim-finalizer.muster.io"),
		names(with(t, directory, "mutating-admission")))
}

// Network data belongs to another provider in most clusters: in production there is nothing of it, neither the kinds, nor the controllers, nor the right to
// read Secrets. The component adds all three.
func TestNetworkDataIsThereWhereItIsAskedFor(t *testing.T) {
	without := mustRender(t, "deploy/overlays/production/ipam-operator")
	for _, object := range append(mustRender(t, "deploy/overlays/production"), without...) {
		group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
		assert.NotEqual(t, infrav1.GroupVersion.Group, group, object.GetName())
	}
	for _, role := range ofKind[rbacv1.ClusterRole](t, without, "ClusterRole") {
		for _, rule := range role.Rules {
			assert.NotContains(t, rule.Resources, "secrets", role.Name)
			assert.NotContains(t, rule.APIGroups, infrav1.GroupVersion.Group, role.Name)
		}
	}
	const flag = "--network-data=true"
	operator := func(objects []*unstructured.Unstructured) []string {
		deployments := ofKind[appsv1.Deployment](t, objects, "Deployment")
		require.Len(t, deployments, 1)
		return deployments[0].Spec.Template.Spec.Containers[0].Args
	}
	assert.NotContains(t, operator(without), flag)

	on := mustRender(t, "deploy/overlays/standalone/ipam-operator")
	assert.Equal(t, append(operator(without), flag, "--webhook-bind-address=:9443"), operator(on))
	written := map[string]bool{}
	for _, rule := range added(t, on, without, "ipam-operator",
		"Role ipam-operator-network-data", "RoleBinding ipam-operator-network-data", "Service ipam-operator-webhook",
		"ClusterRole ipam-operator-network-data-edit", "ClusterRole ipam-operator-network-data-view").Rules {
		for _, resource := range rule.Resources {
			written[resource] = written[resource] || slices.Contains(rule.Verbs, "create")
		}
	}
	assert.True(t, written["secrets"])
	assert.True(t, written["metal3datas"])
	assert.False(t, written["baremetalhosts"])
	var kinds []string
	for _, object := range mustRender(t, "deploy/crds/network-data") {
		kinds = append(kinds, object.GetName())
	}
	group := "." + infrav1.GroupVersion.Group
	assert.ElementsMatch(t, []string{"metal3dataclaims" + group, "metal3datas" + group, "metal3datatemplates" + group}, kinds)
}

// A kustomization that names a namespace names it in the conversion of templates, too: the operator would correct another one each time that it is applied.
func TestTemplatesAreConvertedInTheNamespaceOfTheOperator(t *testing.T) {
	objects, err := render.Overlay{
		Namespace: "platform", Resources: []string{"crds/network-data", "overlays/standalone/ipam-operator"}, Components: []string{"components/existing-namespace"},
	}.Render()
	require.NoError(t, err)
	for _, object := range objects {
		service := []string{"spec", "conversion", "webhook", "clientConfig", "service"}
		namespace, found, err := unstructured.NestedString(object.Object, append(service, "namespace")...)
		require.NoError(t, err)
		if !found {
			continue
		}
		name, _, err := unstructured.NestedString(object.Object, append(service, "name")...)
		require.NoError(t, err)
		assert.Contains(t, names(objects), "Service "+namespace+"/"+name)
		return
	}
	t.Fatal("no definition has a conversion")
}

// Replicas are on several nodes where there are several, and a drain takes one at a time.
func TestReplicasAreSpreadAndDrainedOneByOne(t *testing.T) {
	objects := mustRender(t, "deploy/overlays/production")
	budgets := ofKind[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget")
	selects := func(selector *metav1.LabelSelector, pod map[string]string) bool {
		s, err := metav1.LabelSelectorAsSelector(selector)
		require.NoError(t, err)
		return s.Matches(labels.Set(pod))
	}
	deployments := ofKind[appsv1.Deployment](t, objects, "Deployment")
	require.Len(t, deployments, 5)
	for _, d := range deployments {
		require.EqualValues(t, 2, *d.Spec.Replicas, d.Name)
		pod := d.Spec.Template
		assert.Len(t, slices.DeleteFunc(slices.Clone(budgets), func(b *policyv1.PodDisruptionBudget) bool {
			return b.Namespace != d.Namespace || !selects(b.Spec.Selector, pod.Labels)
		}), 1, "budgets of %s", d.Name)
		require.NotNil(t, pod.Spec.Affinity, d.Name)
		apart := pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		require.Len(t, apart, 1, d.Name)
		assert.Equal(t, corev1.LabelHostname, apart[0].PodAffinityTerm.TopologyKey)
		assert.True(t, selects(apart[0].PodAffinityTerm.LabelSelector, pod.Labels), d.Name)
		require.Len(t, pod.Spec.TopologySpreadConstraints, 1, d.Name)
		assert.Equal(t, corev1.LabelTopologyZone, pod.Spec.TopologySpreadConstraints[0].TopologyKey)
		assert.True(t, selects(pod.Spec.TopologySpreadConstraints[0].LabelSelector, pod.Labels), d.Name)
	}
}

// The operator is told of the inventory, has its token, and may reach it past the network policies.
func TestTheInventoryIsAComponent(t *testing.T) {
	const directory = "overlays/production/ipam-operator"
	objects := with(t, directory, "inventory")
	assert.ElementsMatch(t, append(names(mustRender(t, "deploy/"+directory)), "ConfigMap muster-ipam-operator/ipam-operator-inventory",
		"NetworkPolicy muster-ipam-operator/ipam-operator-inventory"), names(objects))
	pod := ofKind[appsv1.Deployment](t, objects, "Deployment")[0].Spec.Template.Spec
	assert.Subset(t, pod.Containers[0].Args, []string{"--inventory-url=$(INVENTORY_URL)", "--inventory-token-file=/etc/ipam-operator/inventory/token", "--leader-elect"})
	assert.Contains(t, pod.Volumes, corev1.Volume{
		Name: "inventory", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "ipam-operator-inventory"}},
	})
	for _, policy := range ofKind[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy") {
		if policy.Name == "ipam-operator-inventory" {
			assert.Subset(t, ofKind[appsv1.Deployment](t, objects, "Deployment")[0].Spec.Template.Labels, policy.Spec.PodSelector.MatchLabels)
			assert.Equal(t, int32(8000), policy.Spec.Egress[len(policy.Spec.Egress)-1].Ports[0].Port.IntVal)
		}
	}
}

// Ironic, its inspector and Keystone are reached at the ports that they have by default.
func TestWhatDiscoveryAsksIsReached(t *testing.T) {
	open := map[int32]bool{}
	for _, policy := range ofKind[networkingv1.NetworkPolicy](t, mustRender(t, "deploy/overlays/production/discovery-operator"), "NetworkPolicy") {
		for _, rule := range policy.Spec.Egress {
			for _, port := range rule.Ports {
				open[port.Port.IntVal] = open[port.Port.IntVal] || len(rule.To) == 0
			}
		}
	}
	for what, port := range map[string]int32{"Ironic": 6385, "its inspector": 5050, "Keystone": 5000, "each of them behind a proxy": 443} {
		assert.True(t, open[port], what)
	}
}

// The default security contexts of OpenShift admit no pod that says its user. Each account that a pod runs under is bound to those that admit any user but root, in any namespace.
func TestPodsAreAdmittedByOpenShift(t *testing.T) {
	for _, operator := range []string{"pool-operator", "ipam-operator", "discovery-operator", "agent-service"} {
		for _, namespace := range []string{"", "platform"} {
			objects := rendered(t, render.Overlay{
				Namespace: namespace, Resources: []string{"overlays/production/" + operator}, Components: []string{"components/openshift/" + operator},
			})
			bound := map[rbacv1.Subject]bool{}
			for _, binding := range ofKind[rbacv1.RoleBinding](t, objects, "RoleBinding") {
				for _, subject := range binding.Subjects {
					if binding.RoleRef.Name == "system:openshift:scc:nonroot-v2" && binding.Namespace == subject.Namespace {
						bound[subject] = true
					}
				}
			}
			for _, deployment := range ofKind[appsv1.Deployment](t, objects, "Deployment") {
				account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: deployment.Spec.Template.Spec.ServiceAccountName, Namespace: deployment.Namespace}
				assert.True(t, bound[account], "%s/%s", deployment.Namespace, deployment.Name)
			}
		}
	}
}

// The Service of OpenShift's DNS has port 53, and its pods 5353. Policies are asked once the address of a Service was translated to that of a pod.
func TestNamesAreResolvedInOpenShift(t *testing.T) {
	objects := mustRender(t, "deploy/overlays/production")
	objects = append(objects, with(t, "overlays/production/ipam-operator", "inventory")...)
	found := 0
	for _, policy := range ofKind[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy") {
		anywhere, there := map[corev1.Protocol]bool{}, map[corev1.Protocol]bool{}
		for _, rule := range policy.Spec.Egress {
			for _, port := range rule.Ports {
				switch {
				case port.Port.IntVal == 53 && len(rule.To) == 0:
					anywhere[*port.Protocol] = true
				case port.Port.IntVal == 5353 && len(rule.To) == 1:
					assert.Equal(t, map[string]string{corev1.LabelMetadataName: "openshift-dns"}, rule.To[0].NamespaceSelector.MatchLabels)
					there[*port.Protocol] = true
				}
			}
		}
		assert.Equal(t, anywhere, there, policy.Namespace+"/"+policy.Name)
		found += len(there)
	}
	assert.Positive(t, found)
}

// Where no other operator manages hosts, the check that refuses a second host of one machine is served: the API server's
// configuration leads through the Service to the port that the operator listens on, past the network policies.
func TestTheAdmissionCheckIsServed(t *testing.T) {
	for _, directory := range []string{"deploy/overlays/standalone/discovery-operator", "deploy/overlays/production/discovery-operator", "deploy/overlays/kind/discovery-operator"} {
		t.Run(directory, func(t *testing.T) {
			objects := mustRender(t, directory)
			configurations := ofKind[admissionregistrationv1.ValidatingWebhookConfiguration](t, objects, "ValidatingWebhookConfiguration")
			require.Len(t, configurations, 1)
			require.Len(t, configurations[0].Webhooks, 1)
			check := configurations[0].Webhooks[0]
			require.NotNil(t, check.ClientConfig.Service)

			var service *corev1.Service
			for _, s := range ofKind[corev1.Service](t, objects, "Service") {
				if s.Name == check.ClientConfig.Service.Name && s.Namespace == check.ClientConfig.Service.Namespace {
					service = s
				}
			}
			require.NotNil(t, service, "the configuration names a Service that is rendered")
			require.Len(t, service.Spec.Ports, 1)
			assert.Equal(t, int32(443), service.Spec.Ports[0].Port, "which the API server asks where none is named")

			deployment := ofKind[appsv1.Deployment](t, objects, "Deployment")[0]
			assert.Equal(t, service.Namespace, deployment.Namespace)
			assert.Subset(t, deployment.Spec.Template.Labels, service.Spec.Selector)
			container := deployment.Spec.Template.Spec.Containers[0]
			var port int32
			for _, p := range container.Ports {
				if p.Name == service.Spec.Ports[0].TargetPort.String() {
					port = p.ContainerPort
				}
			}
			require.NotZero(t, port, "the pods have the port of the Service")
			assert.Contains(t, container.Args, fmt.Sprintf("--webhook-bind-address=:%d", port))

			policies := ofKind[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")
			var open []int32
			for _, policy := range policies {
				for _, rule := range policy.Spec.Ingress {
					for _, p := range rule.Ports {
						open = append(open, p.Port.IntVal)
					}
				}
			}
			if len(policies) > 0 {
				assert.Contains(t, open, port, "the API server may come in")
			}
		})
	}
}

// How hosted clusters are reached is one component away: each gives the operator the flags that it needs, and a Gateway the right to write routes.
func TestHostedClustersAreExposedByAComponent(t *testing.T) {
	const directory = "overlays/production/pool-operator"
	without := mustRender(t, "deploy/"+directory)
	container := func(objects []*unstructured.Unstructured) corev1.Container {
		deployments := ofKind[appsv1.Deployment](t, objects, "Deployment")
		require.Len(t, deployments, 1)
		return deployments[0].Spec.Template.Spec.Containers[0]
	}
	for _, arg := range container(without).Args {
		assert.NotContains(t, arg, "--hosted-expose", "a ClusterIP by default")
	}
	for component, flags := range map[string][]string{
		"hosted-nodeport":     {"--hosted-expose=NodePort", "--hosted-node-address=$(NODE_ADDRESS)"},
		"hosted-loadbalancer": {"--hosted-expose=LoadBalancer"},
		"hosted-gateway":      {"--hosted-expose=Gateway", "--hosted-gateway=$(HOSTED_GATEWAY)", "--hosted-address=$(HOSTED_ADDRESS)"},
	} {
		t.Run(component, func(t *testing.T) {
			objects := with(t, directory, component)
			got := container(objects)
			assert.Equal(t, append(container(without).Args, flags...), got.Args)
			set := map[string]bool{}
			for _, variable := range got.Env {
				set["$("+variable.Name+")"] = variable.Value != "" || variable.ValueFrom != nil
			}
			for _, flag := range flags {
				if _, variable, found := strings.Cut(flag, "=$("); found {
					assert.True(t, set["$("+variable], flag)
				}
			}
			if component == "hosted-gateway" {
				role := added(t, objects, without, "pool-operator")
				require.Len(t, role.Rules, 1)
				assert.Equal(t, []string{"tlsroutes"}, role.Rules[0].Resources)
			} else {
				assert.Len(t, objects, len(without), "no other object")
			}
		})
	}
}

// TestPodsOfImagesReachAServiceWithTLS by the address, the port and the authority that the service has then.
func TestPodsOfImagesReachAServiceWithTLS(t *testing.T) {
	objects := rendered(t, render.Overlay{
		Namespace: "platform", Resources: []string{"base/agent-service"},
		Components: []string{"components/existing-namespace", "components/agent-service-images", "components/agent-service-tls"},
	})
	for _, config := range ofKind[corev1.ConfigMap](t, objects, "ConfigMap") {
		if strings.HasPrefix(config.Name, "agent-service-images") {
			assert.Equal(t, "https://agent-service", config.Data["SERVICE_URL"])
		}
	}
	ports := map[string]int32{}
	for _, service := range ofKind[corev1.Service](t, objects, "Service") {
		ports[service.Name] = service.Spec.Ports[0].Port
	}
	assert.Equal(t, int32(443), ports["agent-service"])
	assert.Equal(t, int32(443), ports["agent-service-images"])
	assert.Equal(t, int32(8443), ports["agent-service-images-metrics"])
	secrets := map[string][]string{}
	for _, deployment := range ofKind[appsv1.Deployment](t, objects, "Deployment") {
		pod := deployment.Spec.Template.Spec
		assert.Contains(t, pod.Containers[0].Args, "--tls-certificate=/etc/agent-service/tls/tls.crt", deployment.Name)
		assert.Equal(t, deployment.Name == "agent-service-images", slices.Contains(pod.Containers[0].Args, "--service-ca-file=/etc/agent-service/service/ca.crt"))
		for _, volume := range pod.Volumes {
			if volume.Secret != nil {
				secrets[deployment.Name] = append(secrets[deployment.Name], fmt.Sprint(volume.Secret.SecretName, len(volume.Secret.Items)))
			}
		}
	}
	assert.Contains(t, secrets["agent-service"], "agent-service-tls0")
	assert.Equal(t, []string{"agent-service-images-tls0", "agent-service-tls1"}, secrets["agent-service-images"], "of the service's Secret no more than its authority")
}

// The right to Secrets of all namespaces is one component away from one that is bound by namespace: no rule is lost, and nothing binds it.
func TestSecretsOfAgentServiceAreBoundByNamespace(t *testing.T) {
	for _, directory := range []string{"base/agent-service", "overlays/production/agent-service", "overlays/kind/agent-service"} {
		t.Run(directory, func(t *testing.T) {
			without, objects := mustRender(t, "deploy/"+directory), with(t, directory, "agent-service-secrets-by-namespace")
			assert.ElementsMatch(t, append(names(without), "ClusterRole /agent-service-secrets"), names(objects))
			rules := func(objects []*unstructured.Unstructured, name string) []rbacv1.PolicyRule {
				roles := ofKind[rbacv1.ClusterRole](t, objects, "ClusterRole")
				at := slices.IndexFunc(roles, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
				require.GreaterOrEqual(t, at, 0, name)
				return roles[at].Rules
			}
			aboutSecrets := func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "secrets") }
			before := rules(without, "agent-service")
			at := slices.IndexFunc(before, aboutSecrets)
			require.GreaterOrEqual(t, at, 0)
			assert.Equal(t, []rbacv1.PolicyRule{before[at]}, rules(objects, "agent-service-secrets"))
			assert.Equal(t, slices.Delete(slices.Clone(before), at, at+1), rules(objects, "agent-service"))
			for _, binding := range ofKind[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding") {
				assert.NotEqual(t, "agent-service-secrets", binding.RoleRef.Name)
			}
		})
	}
}
