// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/needtest"
)

func TestIgnoredFieldsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{"manifestsConfigMapRef":{"name":"a"}}`: "manifestsConfigMapRef", `{"manifestsConfigMapRefs":[{"name":"a"}]}`: "manifestsConfigMapRefs",
		`{"mirrorRegistryRef":{"name":"a","namespace":"b"}}`: "mirrorRegistryRef", `{"platformType":"VSphere"}`: "platformType",
		`{"diskEncryption":{"enableOn":"all","mode":"tpmv2"}}`: "diskEncryption", `{"diskEncryption":{"enableOn":"none"}}`: "",
		`{"ignitionEndpoint":{"url":"https://a"}}`: "ignitionEndpoint", `{"holdInstallation":true,"ntpSources":["b"]}`: "",
		`{"controlPlane":{"name":"master","hyperthreading":"Enabled"},"compute":[{"name":"worker"}],"loadBalancer":{"type":"ClusterManaged"}}`:                  "",
		`{"controlPlane":{"name":"master","hyperthreading":"Disabled"},"compute":[{"name":"worker","hyperthreading":"Disabled"}],"arbiter":{"name":"arbiter"}}`: "controlPlane, compute",
		`{"mastersSchedulable":true,"external":{"platformName":"oci"},"loadBalancer":{"type":"UserManaged"},"networking":{"networkType":"OVNKubernetes"}}`:      "mastersSchedulable, external, loadBalancer, networking.networkType",
		`{"networking":{"clusterNetwork":[{"cidr":"10.128.0.0/14"},{"cidr":"fd01::/48","hostPrefix":64}]}}`:                                                     "networking.clusterNetwork[].hostPrefix",
		`{"networking":{"clusterNetwork":[{"cidr":"10.128.0.0/14"}]}}`:                                                                                          "",
	} {
		install := &hiveextv1.AgentClusterInstall{}
		require.NoError(t, json.Unmarshal([]byte(text), &install.Spec))
		c := hivev1.FindCondition(status(&snapshot{install: install}, "http://muster", metav1.Now()).Conditions, conditionIgnored)
		require.NotNil(t, c, text)
		if want == "" {
			assert.Equal(t, corev1.ConditionFalse, c.Status, text)
			continue
		}
		assert.Equal(t, corev1.ConditionTrue, c.Status, text)
		assert.Equal(t, "These fields of the spec have no effect: "+want, c.Message)
	}
}

func TestAnIgnoredAnnotationIsNamed(t *testing.T) {
	for mirrors, want := range map[bool]string{
		false: "The annotation agent-install.openshift.io/install-config-overrides has no effect",
		true:  "These fields of the spec have no effect: mirrorRegistryRef. The annotation agent-install.openshift.io/install-config-overrides has no effect",
	} {
		install := &hiveextv1.AgentClusterInstall{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"agent-install.openshift.io/install-config-overrides": `{"fips":true}`}}}
		if mirrors {
			install.Spec.MirrorRegistryRef = &hiveextv1.ObjectReference{}
		}
		c := hivev1.FindCondition(status(&snapshot{install: install}, "http://muster", metav1.Now()).Conditions, conditionIgnored)
		assert.Equal(t, corev1.ConditionTrue, c.Status)
		assert.Equal(t, want, c.Message)
	}
}

var (
	ignoredFields = []string{
		"arbiter", "compute", "controlPlane", "diskEncryption", "external", "ignitionEndpoint", "loadBalancer", "manifestsConfigMapRef", "manifestsConfigMapRefs", "mastersSchedulable",
		"mirrorRegistryRef", "networking.clusterNetwork[].hostPrefix", "networking.networkType", "platformType",
	}
	usedFields = []string{
		"apiVIP", "apiVIPs", "clusterDeploymentRef", "clusterMetadata", "holdInstallation", "imageSetRef", "ingressVIP", "ingressVIPs", "networking.clusterNetwork[].cidr",
		"networking.machineNetwork[].cidr", "networking.serviceNetwork", "networking.userManagedNetworking", "ntpSources", "provisionRequirements.arbiterAgents",
		"provisionRequirements.controlPlaneAgents", "provisionRequirements.workerAgents", "proxy.httpProxy", "proxy.httpsProxy", "proxy.noProxy", "sshPublicKey",
	}
)

// The kind of assisted-service has no field that is kept in silence.
func TestEachFieldOfTheKindInTheFieldIsKnown(t *testing.T) {
	raw, err := os.ReadFile(needtest.Field(t, "crds", "agent-install", "extensions.hive.openshift.io_agentclusterinstalls.yaml"))
	require.NoError(t, err)
	type schema struct {
		Properties map[string]*schema `json:"properties"`
		Items      *schema            `json:"items"`
	}
	var kind struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					Root schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(raw, &kind))
	known := slices.Concat(ignoredFields, usedFields)
	var visit func(field *schema, path string)
	visit = func(field *schema, path string) {
		switch {
		case slices.Contains(known, path):
		case field.Items != nil:
			visit(field.Items, path+"[]")
		case len(field.Properties) == 0:
			assert.Fail(t, "a field is kept in silence", path)
		default:
			for name, below := range field.Properties {
				visit(below, strings.TrimPrefix(path+"."+name, "."))
			}
		}
	}
	visit(kind.Spec.Versions[0].Schema.Root.Properties["spec"], "")
}

// A field of the spec has an effect or is named as one without.
func TestEachFieldIsUsedOrNamedAsIgnored(t *testing.T) {
	known := slices.Concat(ignoredFields, usedFields)
	assert.ElementsMatch(t, known, fieldsOf(reflect.TypeFor[hiveextv1.AgentClusterInstallSpec](), "", known))
	everything := &hiveextv1.AgentClusterInstall{Spec: hiveextv1.AgentClusterInstallSpec{
		DiskEncryption: &hiveextv1.DiskEncryption{EnableOn: new("all")}, IgnitionEndpoint: &hiveextv1.IgnitionEndpoint{}, ManifestsConfigMapRef: &hivev1.LocalObjectReference{},
		ManifestsConfigMapRefs: []hiveextv1.ManifestsConfigMapReference{{}}, MirrorRegistryRef: &hiveextv1.ObjectReference{}, PlatformType: "None",
		Networking:   hiveextv1.Networking{ClusterNetwork: []hiveextv1.ClusterNetworkEntry{{HostPrefix: 23}}, NetworkType: "Cilium"},
		ControlPlane: &hiveextv1.AgentMachinePool{Hyperthreading: "Disabled"}, Compute: []hiveextv1.AgentMachinePool{{}, {Hyperthreading: "Disabled"}}, Arbiter: &hiveextv1.AgentMachinePool{Hyperthreading: "Disabled"},
		MastersSchedulable: true, LoadBalancer: &hiveextv1.LoadBalancer{Type: "UserManaged"}, External: &hiveextv1.ExternalPlatform{},
	}}
	said := hivev1.FindCondition(status(&snapshot{install: everything}, "http://muster", metav1.Now()).Conditions, conditionIgnored).Message
	assert.ElementsMatch(t, ignoredFields, strings.Split(strings.TrimPrefix(said, "These fields of the spec have no effect: "), ", "))
}

// fieldsOf are the paths of the fields of a type, down to those that are known.
func fieldsOf(of reflect.Type, path string, known []string) []string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case slices.Contains(known, path):
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct:
		return fieldsOf(of.Elem(), path+"[]", known)
	case of.Kind() == reflect.Struct:
		var found []string
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			found = append(found, fieldsOf(field.Type, strings.TrimPrefix(path+"."+name, "."), known)...)
		}
		return found
	}
	return []string{path}
}

func TestTheStatusHasTheValidationsOfTheCluster(t *testing.T) {
	install := &hiveextv1.AgentClusterInstall{}
	install.Spec.ProvisionRequirements.ControlPlaneAgents = 3
	seen := &snapshot{install: install, cluster: &domain.Cluster{ClusterSettings: domain.ClusterSettings{ControlPlaneCount: 3, PullSecret: "s"}}, hosts: []domain.Host{
		{State: lifecycle.Known}, {State: lifecycle.Insufficient},
	}}
	statuses := func() map[string]string {
		found := map[string]string{}
		for _, results := range status(seen, "http://muster", metav1.Now()).ValidationsInfo {
			for _, r := range results {
				found[r.ID] = r.Status
				assert.NotEmpty(t, r.Message)
			}
		}
		return found
	}
	assert.Equal(t, map[string]string{
		"pull-secret-set": "success", "dns-domain-defined": "failure", "api-vips-defined": "failure", "all-hosts-are-ready-to-install": "failure", "sufficient-masters-count": "failure",
	}, statuses())
	seen.cluster.BaseDNSDomain, seen.cluster.APIVIPs = "example.com", []string{"192.0.2.1"}
	seen.hosts = []domain.Host{{State: lifecycle.Known}, {State: lifecycle.Installed}, {State: lifecycle.InstallingInProgress}}
	for id, status := range statuses() {
		assert.Equal(t, "success", status, id)
	}
}
