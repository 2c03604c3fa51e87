// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// merge applies a merge patch to an object on the server, and does not keep the answer.
func (a api) merge(t *testing.T, u *unstructured.Unstructured, patch string) error {
	t.Helper()
	return a.Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// The fields that a cluster was installed with do not change; the fields that installers and users write later are accepted.
func TestTheIdentityOfAClusterCannotChange(t *testing.T) {
	a := newAPI(t)
	aws := a.mustCreate(t, cluster(`
  platform: {aws: {region: eu-1, credentialsSecretRef: {name: cloud}, privateLink: {enabled: true}}}
  pullSecretRef: {name: pull}
  provisioning: {imageSetRef: {name: v1}, installConfigSecretRef: {name: config}, installerEnv: [{name: A, value: b}], sshPrivateKeySecretRef: {name: ssh}}
`))
	hosted := a.mustCreate(t, cluster("  platform: {hosted: {}}\n"))
	joined := a.mustCreate(t, cluster("  platform: {hosted: {nodes: {}}}\n"))
	agents := a.mustCreate(t, cluster("  platform: {agentBareMetal: {agentSelector: {matchLabels: {a: b}}}}\n"))
	const again = "delete the ClusterDeployment and create a new one"
	for name, test := range map[string]struct {
		cluster     *unstructured.Unstructured
		patch, says string
	}{
		"clusterName":                {hosted, `{"spec":{"clusterName":"red"}}`, "clusterName cannot change; " + again},
		"baseDomain":                 {hosted, `{"spec":{"baseDomain":"example.org"}}`, "baseDomain cannot change; " + again},
		"hosted becomes none":        {hosted, `{"spec":{"platform":{"hosted":null,"none":{}}}}`, "platform cannot change; " + again},
		"hosted takes nodes later":   {hosted, `{"spec":{"platform":{"hosted":{"nodes":{}}}}}`, "platform cannot change; " + again},
		"hosted takes nodes no more": {joined, `{"spec":{"platform":{"hosted":{"nodes":null}}}}`, "platform cannot change; " + again},
		"networks of nodes":          {joined, `{"spec":{"platform":{"hosted":{"nodes":{"podCIDR":"10.1.0.0/16"}}}}}`, "platform cannot change; " + again},
		"another's becomes hosted":   {aws, `{"spec":{"platform":{"aws":null,"hosted":{}}}}`, "platform cannot change; " + again},
		"provisioning is removed":    {aws, `{"spec":{"provisioning":null}}`, "provisioning cannot change"},
		"provisioning is added":      {hosted, `{"spec":{"provisioning":{"releaseImage":"x"}}}`, "provisioning cannot change"},
		"pullSecretRef":              {aws, `{"spec":{"pullSecretRef":{"name":"other"}}}`, "pullSecretRef cannot change; to change the credentials, change the content of the Secret"},
		"pullSecretRef is added":     {hosted, `{"spec":{"pullSecretRef":{"name":"other"}}}`, "pullSecretRef cannot change"},
	} {
		t.Run(name, func(t *testing.T) { assertRefused(t, a.merge(t, test.cluster, test.patch), test.says) })
	}
	for name, test := range map[string]struct {
		cluster *unstructured.Unstructured
		patch   string
	}{
		"the selector of machines":       {agents, `{"spec":{"platform":{"agentBareMetal":{"agentSelector":{"matchLabels":{"a":"c"}}}}}}`},
		"principals of a private link":   {aws, `{"spec":{"platform":{"aws":{"privateLink":{"additionalAllowedPrincipals":["arn:x"]}}}}}`},
		"audit of a cluster with nodes":  {joined, `{"spec":{"platform":{"hosted":{"audit":"Metadata"}}}}`},
		"power":                          {hosted, `{"spec":{"powerState":"Hibernating"}}`},
		"fields without a model":         {aws, `{"spec":{"manageDNS":false,"ingress":[{"name":"default"}]}}`},
		"where the install object is":    {agents, `{"spec":{"clusterInstallRef":{"group":"g","version":"v1","kind":"K","name":"n"}}}`},
		"hibernateAfter":                 {hosted, `{"spec":{"hibernateAfter":"1h"}}`},
		"the same again":                 {aws, `{"spec":{"clusterName":"blue","pullSecretRef":{"name":"pull"}}}`},
		"how the API is reached":         {aws, `{"spec":{"controlPlaneConfig":{"apiURLOverride":"api.example.com"}}}`},
		"that the cluster is to be kept": {aws, `{"spec":{"preserveOnDelete":true}}`},
	} {
		t.Run("may change: "+name, func(t *testing.T) { require.NoError(t, a.merge(t, test.cluster, test.patch)) })
	}
}

// An installer that tries again writes clusterMetadata anew each time. Once the cluster is installed, it is what users get rights by.
func TestMetadataIsFixedOnceTheClusterIsInstalled(t *testing.T) {
	a := newAPI(t)
	cd := a.mustCreate(t, cluster("  platform: {none: {}}\n"))
	require.NoError(t, a.merge(t, cd, `{"spec":{"clusterMetadata":{"clusterID":"1","infraID":"a","adminKubeconfigSecretRef":{"name":""}}}}`))
	require.NoError(t, a.merge(t, cd, `{"spec":{"clusterMetadata":{"clusterID":"2","infraID":"b","adminKubeconfigSecretRef":{"name":"k"},"platform":{"x":"y"}}}}`), "the second attempt")
	require.NoError(t, a.merge(t, cd, `{"spec":{"installed":true}}`))
	require.NoError(t, a.merge(t, cd, `{"spec":{"clusterMetadata":{"nodeAccessSecretRef":{"name":"n"}}}}`), "nodes can join later")
	for name, patch := range map[string]string{
		"access of nodes":    `{"spec":{"clusterMetadata":{"nodeAccessSecretRef":{"name":"pull-secret"}}}}`,
		"no access of nodes": `{"spec":{"clusterMetadata":{"nodeAccessSecretRef":null}}}`,
		"no platform":        `{"spec":{"clusterMetadata":{"platform":null}}}`,
		"the Secret":         `{"spec":{"clusterMetadata":{"adminKubeconfigSecretRef":{"name":"pull-secret"}}}}`,
		"the ID":             `{"spec":{"clusterMetadata":{"clusterID":"3"}}}`,
		"the infra ID":       `{"spec":{"clusterMetadata":{"infraID":"c"}}}`,
		"all of it":          `{"spec":{"clusterMetadata":null}}`,
		"not installed":      `{"spec":{"installed":false,"clusterMetadata":null}}`,
	} {
		t.Run(name, func(t *testing.T) {
			err := a.merge(t, cd, patch)
			if name == "not installed" {
				assertRefused(t, err, "installed cannot go back to false")
				return
			}
			assertRefused(t, err, "clusterMetadata cannot change once the cluster is installed; credentials are changed in the Secrets that it names")
		})
	}
	require.NoError(t, a.merge(t, cd, `{"spec":{"clusterMetadata":{"metadataJSONSecretRef":{"name":"m"}}}}`), "an installer adds a reference later")
	assertRefused(t, a.merge(t, cd, `{"spec":{"clusterMetadata":{"metadataJSONSecretRef":{"name":"pull-secret"}}}}`), "clusterMetadata cannot change")
	assertRefused(t, a.merge(t, cd, `{"spec":{"clusterMetadata":{"metadataJSONSecretRef":null}}}`), "clusterMetadata cannot change")

	late := a.mustCreate(t, cluster("  platform: {none: {}}\n  installed: true\n"))
	require.NoError(t, a.merge(t, late, `{"spec":{"clusterMetadata":{"clusterID":"1","infraID":"a","adminKubeconfigSecretRef":{"name":"k"}}}}`), "it was not set before")
	require.NoError(t, a.merge(t, late, `{"spec":{"clusterMetadata":{"platform":{"x":"y"}}}}`), "an installer adds it later")
}

// A claim's subject, who may change one ClusterDeployment by its name, changes its power, labels and annotations and nothing else.
func TestASubjectChangesPowerLabelsAndAnnotations(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	cd := a.object(t, cluster("  platform: {hosted: {}}\n  installed: true\n  clusterPoolRef: {namespace: a, poolName: b, claimName: c}\n"))
	cd.SetLabels(map[string]string{"hive.openshift.io/disable-creation-webhook-for-dr": "true", "hive.openshift.io/clusterpool-name": "b"})
	cd.SetFinalizers([]string{"hive.openshift.io/deprovision"})
	require.NoError(t, a.Create(t.Context(), cd))
	rule := func(name string, resourceNames ...string) {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"hive.openshift.io"}, Resources: []string{"clusterdeployments"}, ResourceNames: resourceNames, Verbs: []string{"get", "patch", "update"}},
		}}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		}
		require.NoError(t, a.Create(t.Context(), role))
		require.NoError(t, a.Create(t.Context(), binding))
	}
	a.allow(t, "subject", "secrets", "get", "pull-secret") // it is not that which keeps him from naming it
	rule("subject", cd.GetName())
	rule("installer")
	a.allow(t, "installer", "secrets", "get")
	as := func(user string) api {
		config := rest.CopyConfig(a.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		return api{Client: newClient(t, config), config: config, namespace: a.namespace}
	}
	subject, installer := as("subject"), as("installer")
	require.Eventually(t, func() bool {
		err := subject.Patch(t.Context(), cd.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hibernateAfter":"1h"}}`)), client.DryRunAll)
		return err != nil && subject.Get(t.Context(), client.ObjectKeyFromObject(cd), cd.DeepCopy()) == nil
	}, time.Minute, 50*time.Millisecond, "policies and rights come into force in their own time")

	const power = "of the spec of a claimed cluster, its claim's subjects may change powerState only"
	for name, test := range map[string]struct{ patch, says string }{
		"clusterMetadata": {`{"spec":{"clusterMetadata":{"clusterID":"1","infraID":"a","adminKubeconfigSecretRef":{"name":"pull-secret"}}}}`, power},
		"hibernateAfter":  {`{"spec":{"hibernateAfter":"1h"}}`, power},
		"install object":  {`{"spec":{"clusterInstallRef":{"group":"g","version":"v1","kind":"K","name":"n"}}}`, power},
		"not modelled":    {`{"spec":{"manageDNS":true}}`, power},
		"preserve":        {`{"spec":{"preserveOnDelete":true}}`, power},
		"a finalizer":     {`{"metadata":{"finalizers":null}}`, "finalizers and ownerReferences of a claimed cluster are the operator's"},
		"an owner":        {`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}`, "finalizers and ownerReferences"},
		"the pool's mark": {`{"metadata":{"labels":{"hive.openshift.io/clusterpool-name":"other"}}}`, "these labels and annotations of a claimed cluster are the operator's"},
		"infra":           {`{"metadata":{"annotations":{"hive.openshift.io/infra-disabled":"true"}}}`, "these labels and annotations of a claimed cluster are the operator's"},
		"a pause":         {`{"metadata":{"annotations":{"hive.openshift.io/reconcile-pause":"true"}}}`, "these labels and annotations of a claimed cluster are the operator's"},
		"protection":      {`{"metadata":{"annotations":{"hive.openshift.io/protected-delete":"true"}}}`, "these labels and annotations of a claimed cluster are the operator's"},
	} {
		t.Run(name, func(t *testing.T) { assertRefused(t, subject.merge(t, cd, test.patch), test.says) })
	}
	require.NoError(t, installer.merge(t, cd, `{"metadata":{"annotations":{"hive.openshift.io/protected-delete":"true"}}}`), "an administrator protects the cluster")
	assertRefused(t, subject.merge(t, cd, `{"metadata":{"annotations":{"hive.openshift.io/protected-delete":null}}}`), "these labels and annotations of a claimed cluster are the operator's")
	require.NoError(t, subject.merge(t, cd, `{"metadata":{"annotations":{"hive.openshift.io/powerstate-pause":"true"}}}`), "power is the subject's")
	require.NoError(t, subject.merge(t, cd, `{"spec":{"powerState":"Hibernating"}}`))
	require.NoError(t, subject.merge(t, cd, `{"spec":{"powerState":null}}`))
	require.NoError(t, subject.merge(t, cd, `{"metadata":{"labels":{"team":"a"},"annotations":{"note":"b"}}}`))
	require.NoError(t, installer.merge(t, cd, `{"spec":{"clusterMetadata":{"clusterID":"1","infraID":"a","adminKubeconfigSecretRef":{"name":"k"}}}}`), "the installer writes the identity of the cluster")
	require.NoError(t, installer.merge(t, cd, `{"metadata":{"finalizers":null}}`))
}

// Networks of nodes are refused with a sentence when they cannot work.
func TestNetworksOfNodesAreChecked(t *testing.T) {
	a := newAPI(t)
	for nodes, says := range map[string]string{
		"{podCIDR: 10.1.2.3/16}":                              "podCIDR must be a network of /24 or larger such as 10.244.0.0/16",
		"{podCIDR: 10.1.2.0/26}":                              "podCIDR must be a network of /24 or larger",
		"{podCIDR: 'fd00::/64'}":                              "podCIDR must be a network of /24 or larger",
		"{podCIDR: pods}":                                     "podCIDR must be a network of /24 or larger",
		"{serviceCIDR: 10.0.0.0/8}":                           "serviceCIDR must be a network between /12 and /28 such as 10.96.0.0/16",
		"{clusterDNS: resolver}":                              "clusterDNS must be an address such as 10.96.0.10",
		"{clusterDNS: 10.97.0.10}":                            "clusterDNS must be an address of serviceCIDR",
		"{podCIDR: 10.96.0.0/12}":                             "podCIDR and serviceCIDR must not overlap",
		"{serviceCIDR: 10.244.8.0/24}":                        "podCIDR and serviceCIDR must not overlap",
		"{serviceCIDR: 10.96.0.0/16, clusterDNS: 10.244.0.1}": "clusterDNS must be an address of serviceCIDR",
	} {
		t.Run(nodes, func(t *testing.T) {
			assertRefused(t, a.Create(t.Context(), a.object(t, cluster("  platform: {hosted: {nodes: "+nodes+"}}\n"))), says)
		})
	}
	a.mustCreate(t, cluster("  platform: {hosted: {nodes: {podCIDR: 10.1.0.0/16, serviceCIDR: 10.2.0.0/24, clusterDNS: 10.2.0.2}}}\n"))
}
