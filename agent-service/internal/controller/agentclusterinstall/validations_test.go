// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

func TestIgnoredFieldsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{"manifestsConfigMapRef":{"name":"a"}}`: "manifestsConfigMapRef", `{"manifestsConfigMapRefs":[{"name":"a"}]}`: "manifestsConfigMapRefs",
		`{"mirrorRegistryRef":{"name":"a","namespace":"b"}}`: "mirrorRegistryRef", `{"platformType":"VSphere"}`: "platformType",
		`{"diskEncryption":{"enableOn":"all","mode":"tpmv2"}}`: "diskEncryption", `{"diskEncryption":{"enableOn":"none"}}`: "",
		`{"ignitionEndpoint":{"url":"https://a"},"ntpSources":["b"]}`: "ignitionEndpoint, ntpSources", `{"holdInstallation":true}`: "",
		`{"networking":{"clusterNetwork":[{"cidr":"10.128.0.0/14"},{"cidr":"fd01::/48","hostPrefix":64}]}}`: "networking.clusterNetwork[].hostPrefix",
		`{"networking":{"clusterNetwork":[{"cidr":"10.128.0.0/14"}]}}`:                                      "",
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

// A field of the spec has an effect or is named as one without.
func TestEachFieldIsUsedOrNamedAsIgnored(t *testing.T) {
	ignored := []string{
		"diskEncryption", "ignitionEndpoint", "manifestsConfigMapRef", "manifestsConfigMapRefs", "mirrorRegistryRef", "networking.clusterNetwork[].hostPrefix", "ntpSources", "platformType",
	}
	used := []string{
		"apiVIP", "apiVIPs", "clusterDeploymentRef", "clusterMetadata", "holdInstallation", "imageSetRef", "ingressVIP", "ingressVIPs", "networking.clusterNetwork[].cidr",
		"networking.machineNetwork[].cidr", "networking.serviceNetwork", "networking.userManagedNetworking", "provisionRequirements.arbiterAgents", "provisionRequirements.controlPlaneAgents",
		"provisionRequirements.workerAgents", "proxy.httpProxy", "proxy.httpsProxy", "proxy.noProxy", "sshPublicKey",
	}
	known := slices.Concat(ignored, used)
	assert.ElementsMatch(t, known, fieldsOf(reflect.TypeFor[hiveextv1.AgentClusterInstallSpec](), "", known))
	everything := &hiveextv1.AgentClusterInstall{Spec: hiveextv1.AgentClusterInstallSpec{
		DiskEncryption: &hiveextv1.DiskEncryption{EnableOn: new("all")}, IgnitionEndpoint: &hiveextv1.IgnitionEndpoint{}, ManifestsConfigMapRef: &hivev1.LocalObjectReference{},
		ManifestsConfigMapRefs: []hiveextv1.ManifestsConfigMapReference{{}}, MirrorRegistryRef: &hiveextv1.ObjectReference{}, NTPSources: []string{"a"}, PlatformType: "None",
		Networking: hiveextv1.Networking{ClusterNetwork: []hiveextv1.ClusterNetworkEntry{{HostPrefix: 23}}},
	}}
	said := hivev1.FindCondition(status(&snapshot{install: everything}, "http://muster", metav1.Now()).Conditions, conditionIgnored).Message
	assert.ElementsMatch(t, ignored, strings.Split(strings.TrimPrefix(said, "These fields of the spec have no effect: "), ", "))
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
