// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// A policy keeps those parts of a ClusterDeployment that its schema does not describe.
func TestSettingsOfAWSCannotChange(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	cd := a.mustCreate(t, cluster("  platform: {aws: {region: eu-1, credentialsSecretRef: {name: cloud}, userTags: {a: b}, privateLink: {enabled: true}}}\n"))
	const sentence = "of platform.aws, only privateLink.additionalAllowedPrincipals can change"
	require.Eventually(t, func() bool {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"platform":{"aws":{"region":"eu-2"}}}}`))
		return a.Patch(t.Context(), cd.DeepCopy(), patch, client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "the policies are not in force")
	for name, patch := range map[string]string{
		"the region":               `{"spec":{"platform":{"aws":{"region":"eu-2"}}}}`,
		"the credentials":          `{"spec":{"platform":{"aws":{"credentialsSecretRef":{"name":"other"}}}}}`,
		"a key of a map":           `{"spec":{"platform":{"aws":{"userTags":{"a":"c"}}}}}`,
		"a new setting":            `{"spec":{"platform":{"aws":{"credentialsAssumeRole":{"roleARN":"arn:x"}}}}}`,
		"a setting that goes":      `{"spec":{"platform":{"aws":{"userTags":null}}}}`,
		"whether there is a link":  `{"spec":{"platform":{"aws":{"privateLink":{"enabled":false}}}}}`,
		"the link goes":            `{"spec":{"platform":{"aws":{"privateLink":null}}}}`,
		"a new setting of a link":  `{"spec":{"platform":{"aws":{"privateLink":{"other":1}}}}}`,
		"principals and a setting": `{"spec":{"platform":{"aws":{"region":"eu-2","privateLink":{"additionalAllowedPrincipals":["arn:x"]}}}}}`,
	} {
		t.Run(name, func(t *testing.T) { assertRefused(t, a.merge(t, cd, patch), sentence) })
	}
	require.NoError(t, a.merge(t, cd, `{"spec":{"platform":{"aws":{"privateLink":{"additionalAllowedPrincipals":["arn:x"]}}},"powerState":"Hibernating"}}`))
	require.NoError(t, a.merge(t, cd, `{"spec":{"platform":{"aws":{"privateLink":{"additionalAllowedPrincipals":null}}}}}`))
	require.NoError(t, a.merge(t, a.mustCreate(t, cluster("  platform: {hosted: {}}\n")), `{"spec":{"powerState":"Hibernating"}}`))
}

// What Hive lets change, and what its controllers change by themselves, is accepted; all else is refused with a sentence.
func TestSettingsOfOtherInstallersChangeAsTheirInstallersLetThem(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	made := func(platform string) *unstructured.Unstructured {
		return a.mustCreate(t, cluster("  platform: "+platform+"\n"))
	}
	gcp := made("{gcp: {region: r, credentialsSecretRef: {name: cloud}}}")
	vsphere := made("{vsphere: {vCenter: v, datacenter: d, credentialsSecretRef: {name: cloud}, certificatesSecretRef: {name: ca}}}")
	nutanix := made("{nutanix: {prismCentral: {endpoint: {address: a, port: 1}}, credentialsSecretRef: {name: cloud}}}")
	// Hive's schema gives a reference that is left out the name "".
	byRole := made("{aws: {region: r, credentialsAssumeRole: {roleARN: arn}, credentialsSecretRef: {name: ''}}}")
	federated := made("{gcp: {region: r}}")
	azure := made("{azure: {region: r, credentialsSecretRef: {name: cloud}, baseDomainResourceGroupName: g, cloudName: ''}}")
	openstack := made("{openstack: {cloud: c, credentialsSecretRef: {name: cloud}, certificatesSecretRef: {name: ''}, trunkSupport: false}}")
	ibmcloud := made("{ibmcloud: {region: r, credentialsSecretRef: {name: cloud}, accountID: null}}")
	baremetal := made("{baremetal: {libvirtSSHPrivateKeySecretRef: {name: key}}}")
	require.Eventually(t, func() bool {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"platform":{"gcp":{"region":"other"}}}}`))
		return a.Patch(t.Context(), gcp.DeepCopy(), patch, client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "the policies are not in force")

	for name, test := range map[string]struct {
		cluster     *unstructured.Unstructured
		patch, says string
	}{
		"the region of GCP":           {gcp, `{"spec":{"platform":{"gcp":{"region":"other"}}}}`, "of platform.gcp, only discardLocalSsdOnHibernate can change"},
		"the credentials of GCP":      {gcp, `{"spec":{"platform":{"gcp":{"credentialsSecretRef":{"name":"other"}}}}}`, "of platform.gcp, only discardLocalSsdOnHibernate can change"},
		"the credentials of GCP go":   {gcp, `{"spec":{"platform":{"gcp":{"credentialsSecretRef":{"name":""}}}}}`, "of platform.gcp, only discardLocalSsdOnHibernate can change"},
		"credentials come":            {federated, `{"spec":{"platform":{"gcp":{"credentialsSecretRef":{"name":"other"}}}}}`, "of platform.gcp, only discardLocalSsdOnHibernate can change"},
		"the vCenter":                 {vsphere, `{"spec":{"platform":{"vsphere":{"vCenter":"other"}}}}`, "of platform.vsphere, only infrastructure can be added"},
		"infrastructure and vCenter":  {vsphere, `{"spec":{"platform":{"vsphere":{"vCenter":null,"infrastructure":{"vcenters":[]}}}}}`, "of platform.vsphere, only infrastructure can be added"},
		"the endpoint of Nutanix":     {nutanix, `{"spec":{"platform":{"nutanix":{"prismCentral":{"endpoint":{"port":2}}}}}}`, "platform.nutanix cannot change"},
		"certificates of Nutanix":     {nutanix, `{"spec":{"platform":{"nutanix":{"certificatesSecretRef":{"name":"ca"}}}}}`, "platform.nutanix cannot change"},
		"credentials beside the role": {byRole, `{"spec":{"platform":{"aws":{"credentialsSecretRef":{"name":"c"}}}}}`, "of platform.aws, only privateLink.additionalAllowedPrincipals can change"},
		"the region of Azure":         {azure, `{"spec":{"platform":{"azure":{"region":"other"}}}}`, "platform.azure cannot change"},
		"the environment of Azure":    {azure, `{"spec":{"platform":{"azure":{"cloudName":"AzureChinaCloud"}}}}`, "platform.azure cannot change"},
		"the cloud of OpenStack":      {openstack, `{"spec":{"platform":{"openstack":{"cloud":"other"}}}}`, "platform.openstack cannot change"},
		"the account of IBM Cloud":    {ibmcloud, `{"spec":{"platform":{"ibmcloud":{"accountID":"other"}}}}`, "platform.ibmcloud cannot change"},
		"the key of bare metal":       {baremetal, `{"spec":{"platform":{"baremetal":{"libvirtSSHPrivateKeySecretRef":{"name":"other"}}}}}`, "platform.baremetal cannot change"},
		"another platform":            {gcp, `{"spec":{"platform":{"gcp":null,"none":{}}}}`, "platform cannot change"},
	} {
		t.Run(name, func(t *testing.T) { assertRefused(t, a.merge(t, test.cluster, test.patch), test.says) })
	}
	for name, test := range map[string]struct {
		cluster *unstructured.Unstructured
		patch   string
	}{
		"a user hibernates machines with local disks":              {gcp, `{"spec":{"platform":{"gcp":{"discardLocalSsdOnHibernate":true}}}}`},
		"Hive writes what it reads the deprecated settings as":     {vsphere, `{"spec":{"platform":{"vsphere":{"infrastructure":{"vcenters":[{"server":"v","datacenters":["d"]}]}}}}}`},
		"Hive's type has a reference that is not set: of GCP":      {federated, `{"spec":{"platform":{"gcp":{"credentialsSecretRef":{}}}}}`},
		"Hive's type has a reference that is not set: of Nutanix":  {nutanix, `{"spec":{"platform":{"nutanix":{"certificatesSecretRef":{}}}}}`},
		"Hive's type leaves out the name of what is not set":       {byRole, `{"spec":{"platform":{"aws":{"credentialsSecretRef":{"name":null}}}}}`},
		"Hive's type leaves out what is empty: of Azure":           {azure, `{"spec":{"platform":{"azure":{"cloudName":null}}}}`},
		"Hive's type leaves out what is empty: of OpenStack":       {openstack, `{"spec":{"platform":{"openstack":{"certificatesSecretRef":{"name":null},"trunkSupport":null}}}}`},
		"Hive's type leaves out an empty list or says what is off": {byRole, `{"spec":{"platform":{"aws":{"privateLink":{"enabled":false}}}}}`},
	} {
		t.Run("may change: "+name, func(t *testing.T) { require.NoError(t, a.merge(t, test.cluster, test.patch)) })
	}
	hives := ibmcloud.DeepCopy()
	unstructured.RemoveNestedField(hives.Object, "spec", "platform", "ibmcloud", "accountID")
	require.NoError(t, a.Update(t.Context(), hives), "Hive's type has no null")
	assertRefused(t, a.merge(t, vsphere, `{"spec":{"platform":{"vsphere":{"infrastructure":{"vcenters":[]}}}}}`), "of platform.vsphere, only infrastructure can be added")
	assertRefused(t, a.merge(t, vsphere, `{"spec":{"platform":{"vsphere":{"infrastructure":null}}}}`), "of platform.vsphere, only infrastructure can be added")
}

// How a cluster is installed does not change. A type of Go leaves out what is empty, and that is no change.
func TestHowAClusterIsInstalledCannotChange(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	cd := a.mustCreate(t, cluster(`
  platform: {none: {}}
  provisioning:
    imageSetRef: {name: v1}
    releaseImage: ''
    sshKnownHosts: []
    installerImageOverride: ''
    manifestsConfigMapRef: {name: m}
    installerEnv: [{name: A, value: ''}, {name: B, value: b}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}]
`))
	none := a.mustCreate(t, cluster("  platform: {none: {}}\n"))
	const sentence = "provisioning cannot change; delete the ClusterDeployment and create a new one"
	require.Eventually(t, func() bool {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"provisioning":{"imageSetRef":{"name":"v2"}}}}`))
		return a.Patch(t.Context(), cd.DeepCopy(), patch, client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "the policies are not in force")
	for name, patch := range map[string]string{
		"the image set":             `{"spec":{"provisioning":{"imageSetRef":{"name":"v2"}}}}`,
		"the image":                 `{"spec":{"provisioning":{"releaseImage":"x"}}}`,
		"a field without a model":   `{"spec":{"provisioning":{"manifestsConfigMapRef":{"name":"other"}}}}`,
		"a field that goes":         `{"spec":{"provisioning":{"manifestsConfigMapRef":null}}}`,
		"a field that comes":        `{"spec":{"provisioning":{"sshPrivateKeySecretRef":{"name":"s"}}}}`,
		"all of it":                 `{"spec":{"provisioning":null}}`,
		"a variable gets a value":   `{"spec":{"provisioning":{"installerEnv":[{"name":"A","value":"a"},{"name":"B","value":"b"},{"name":"C","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}}}`,
		"a variable goes":           `{"spec":{"provisioning":{"installerEnv":[{"name":"A"},{"name":"B","value":"b"}]}}}`,
		"the source of a variable":  `{"spec":{"provisioning":{"installerEnv":[{"name":"A"},{"name":"B","value":"b"},{"name":"C","valueFrom":{"secretKeyRef":{"name":"s","key":"x"}}}]}}}`,
		"a variable is another one": `{"spec":{"provisioning":{"installerEnv":[{"name":"X"},{"name":"B","value":"b"},{"name":"C","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}}}`,
		"all variables":             `{"spec":{"provisioning":{"installerEnv":null}}}`,
	} {
		t.Run(name, func(t *testing.T) { assertRefused(t, a.merge(t, cd, patch), sentence) })
	}
	assertRefused(t, a.merge(t, none, `{"spec":{"provisioning":{"releaseImage":"x"}}}`), sentence)
	require.NoError(t, a.merge(t, none, `{"spec":{"powerState":"Hibernating"}}`))
	require.NoError(t, a.merge(t, cd, `{"spec":{"powerState":"Hibernating","provisioning":{"releaseImage":null,"sshKnownHosts":null,"installerImageOverride":null,
		"installerEnv":[{"name":"A"},{"name":"B","value":"b"},{"name":"C","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}}}`), "Hive's types leave out what is empty")
}

// Hive finds out the resource group of an Azure cluster that was adopted, and lets users set what it does not find. Until then its type writes null.
func TestInstallersCompleteWhatTheyRecordAboutAPlatform(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	made := func(platform string) *unstructured.Unstructured {
		return a.mustCreate(t, cluster(`
  platform: {none: {}}
  installed: true
  clusterMetadata: {clusterID: '1', infraID: a, adminKubeconfigSecretRef: {name: k}, platform: `+platform+"}\n"))
	}
	azure, aws, gcp := made("{azure: {resourceGroupName: null}}"), made("{aws: {hostedZoneRole: arn, account: x}}"), made("{}")
	other := made("{x: y}")
	require.Eventually(t, func() bool {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"clusterMetadata":{"platform":{"x":"z"}}}}`))
		return a.Patch(t.Context(), other.DeepCopy(), patch, client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "the policies are not in force")
	for name, test := range map[string]struct {
		cluster *unstructured.Unstructured
		patch   string
	}{
		"Hive finds the resource group":  {azure, `{"azure":{"resourceGroupName":"group"}}`},
		"a user corrects it":             {azure, `{"azure":{"resourceGroupName":"other"}}`},
		"a user changes the role of AWS": {aws, `{"aws":{"hostedZoneRole":"other"}}`},
		"a user sets the project of GCP": {gcp, `{"gcp":{"networkProjectID":"project"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, a.merge(t, test.cluster, `{"spec":{"clusterMetadata":{"platform":`+test.patch+`}}}`))
		})
	}
	require.NoError(t, a.merge(t, azure, `{"spec":{"clusterMetadata":{"platform":{"azure":{"resourceGroupName":"again"}}}}}`))
	require.NoError(t, a.merge(t, gcp, `{"spec":{"clusterMetadata":{"platform":{"gcp":{"networkProjectID":"again"},"aws":{}}}}}`), "a type of Go writes what is not set as an empty value")
	for name, test := range map[string]struct {
		cluster *unstructured.Unstructured
		patch   string
	}{
		"a value without a name of Hive's":         {other, `{"x":"z"}`},
		"another key":                              {other, `{"a":"b"}`},
		"a key that goes":                          {other, `{"x":null}`},
		"another setting of AWS":                   {aws, `{"aws":{"account":"z"}}`},
		"a new setting of AWS":                     {aws, `{"aws":{"a":"b"}}`},
		"the resource group goes":                  {azure, `{"azure":{"resourceGroupName":null}}`},
		"the resource group is emptied":            {azure, `{"azure":{"resourceGroupName":""}}`},
		"what is recorded about Azure goes":        {azure, `{"azure":null}`},
		"a setting beside one that may be changed": {aws, `{"aws":{"hostedZoneRole":"x","account":"z"}}`},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			assertRefused(t, a.merge(t, test.cluster, `{"spec":{"clusterMetadata":{"platform":`+test.patch+`}}}`), "of clusterMetadata.platform of an installed cluster, only")
		})
	}
}

// inventories are inventories that are refused, with the sentence that is said.
var inventories = map[string]struct{ inventory, sentence string }{
	"a list of customizations":     {"[{name: a}]", "write 'inventory: {clusterDeployments: [{name: blue}]}'"},
	"a list of what hive has, too": {"[{kind: ClusterDeploymentCustomization, name: a}]", "A list of ClusterDeploymentCustomizations has no effect here"},
	"an empty list":                {"[]", "write 'inventory: {clusterDeployments: [{name: blue}]}'"},
	"a name":                       {"blue", "write 'inventory: {clusterDeployments: [{name: blue}]}'"},
	"a field that it does not have": {
		"{clusterDeployment: [{name: a}]}", "spec.inventory has no field clusterDeployment: its only field is clusterDeployments",
	},
	"an empty name":           {"{clusterDeployments: [{name: ''}]}", "write a name of lower-case letters, digits and '-' that begins and ends with a letter or digit, such as 'blue-1'"},
	"an entry without a name": {"{clusterDeployments: [{}]}", "write a name of lower-case letters, digits and '-' that begins and ends with a letter or digit, such as 'blue-1'"},
	"a name with capitals":    {"{clusterDeployments: [{name: blue}, {name: Blue}]}", "write a name of lower-case letters, digits and '-'"},
}

// The field held a list once. A user who applies one gets a sentence that says what to write, with each way to apply it: "kubectl apply", with --server-side, or a patch.
func TestInventoriesAreRefusedWithASentence(t *testing.T) {
	a := newAPI(t)
	stored := a.mustCreate(t, pool(hostedPool+"  inventory: [{name: stored-before}]\n"))
	plain := a.mustCreate(t, pool(hostedPool))
	a.installPolicies(t, admissionFile)
	require.Eventually(t, func() bool {
		return a.Create(t.Context(), a.object(t, pool(hostedPool+"  inventory: []\n")), client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "the policies are not in force")
	for name, test := range inventories {
		t.Run(name, func(t *testing.T) {
			manifest := pool(hostedPool + "  inventory: " + test.inventory + "\n")
			_, err := a.create(t, manifest)
			assertRefused(t, err, test.sentence)
			assertRefused(t, a.apply(t, manifest, "applied", "kubectl"), test.sentence)
			inventory, err := yaml.YAMLToJSON([]byte(test.inventory))
			require.NoError(t, err)
			assertRefused(t, a.merge(t, plain, `{"spec":{"inventory":`+string(inventory)+`}}`), test.sentence)
		})
	}
	require.NoError(t, a.set(t, stored, int64(2), "spec", "size"), "the rest of a pool that was stored with a list can change")
	require.NoError(t, a.merge(t, stored, `{"spec":{"inventory":{"clusterDeployments":[{"name":"blue"}]}}}`))
}

// Several appliers have entries of one inventory, and each keeps its own.
func TestEntriesOfAnInventoryHaveSeveralAppliers(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	require.NoError(t, a.apply(t, pool(hostedPool+"  inventory: {clusterDeployments: [{name: blue}]}\n"), "shared", "one"))
	require.NoError(t, a.apply(t, pool(hostedPool+"  inventory: {clusterDeployments: [{name: red}]}\n"), "shared", "two"))
	require.NoError(t, a.apply(t, pool(hostedPool), "shared", "one"))
	got := &hivev1.ClusterPool{}
	require.NoError(t, a.Get(t.Context(), client.ObjectKey{Namespace: a.namespace, Name: "shared"}, got))
	require.Equal(t, []hivev1.InventoryClusterDeployment{{Name: "red"}}, got.Spec.Inventory.ClusterDeployments)
}

// apply applies the manifest as "kubectl apply --server-side" does.
func (a api) apply(t *testing.T, manifest, name, owner string) error {
	t.Helper()
	u := a.object(t, manifest)
	u.SetGenerateName("")
	u.SetName(name)
	strict := client.WithFieldValidation(a.Client, metav1.FieldValidationStrict)
	return strict.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner))
}

// warnings are what the API server said beside its answers.
type warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// take returns what was said since it was last called.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// The API server warns the client that writes an annotation that is no boolean, on every kind.
func TestAnnotationsThatAreNoBooleansAreWarnedOf(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	received := &warnings{}
	config := rest.CopyConfig(a.config)
	config.WarningHandlerWithContext = received
	user := api{Client: newClient(t, config), config: config, namespace: a.namespace}
	const annotate = `{"metadata":{"annotations":{"hive.openshift.io/protected-delete":"yes","hive.openshift.io/reconcile-pause":"True"}}}`
	const sentence = `the value of an annotation is no boolean and counts as false; write "true" or "false": hive.openshift.io/protected-delete`
	warned := func() bool {
		return slices.ContainsFunc(received.take(), func(text string) bool { return strings.Contains(text, sentence) })
	}
	pool, cd := a.mustCreate(t, pool(hostedPool)), a.mustCreate(t, cluster("  platform: {none: {}}\n"))
	require.Eventually(t, func() bool {
		err := user.Patch(t.Context(), pool.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(annotate)), client.DryRunAll)
		return err == nil && warned()
	}, time.Minute, 50*time.Millisecond, "the policies are not in force")
	for _, object := range []client.Object{pool, cd, a.mustCreate(t, claim("  clusterPoolName: p\n")), a.mustCreate(t, machinePool("  replicas: 1\n"))} {
		patch := func(text string) {
			t.Helper()
			require.NoError(t, user.Patch(t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(text))))
		}
		patch(annotate)
		assert.True(t, warned(), "%T is annotated", object)
		patch(`{"metadata":{"labels":{"a":"b"}}}`)
		assert.Empty(t, received.take(), "only the client that writes the annotation is warned")
		patch(`{"metadata":{"annotations":{"hive.openshift.io/protected-delete":"f","other.example.com/key":"yes"}}}`)
		assert.Empty(t, received.take())
	}
}
