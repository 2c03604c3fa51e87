// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"encoding/json"
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
