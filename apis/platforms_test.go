// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// TestEveryPlatformStandsInTheRules: the schema has a field for each platform, and rules and a page that list them all.
func TestEveryPlatformStandsInTheRules(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(specifications, "clusterpool.md"))
	require.NoError(t, err)
	policies, err := os.ReadFile(admissionFile)
	require.NoError(t, err)
	lists := regexp.MustCompile(`\['aws', .*?\]`).FindAllString(string(policies), -1)
	require.Len(t, lists, 2, "of the policy clusterdeployment-platform.muster.io")
	found := 0
	for _, c := range ourCRDs(t) {
		if c.Name != "clusterpools.hive.openshift.io" && c.Name != "clusterdeployments.hive.openshift.io" {
			continue
		}
		found++
		platform := c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["platform"]
		require.NotEmpty(t, platform.Properties, c.Name)
		for name := range platform.Properties {
			stands := func(text, in, where string) {
				if !strings.Contains(in, text) {
					t.Errorf("%s is not in %s", text, where)
				}
			}
			stands("has(self."+name+")", rules(platform), "the rule of Platform")
			if c.Spec.Names.Kind == "ClusterDeployment" {
				stands("has(oldSelf."+name+")", rules(platform), "the rule of spec.platform of ClusterDeployment")
				if !slices.Contains([]string{"hosted", "agentBareMetal", "none"}, name) { // whose settings the schema models, or that has none
					stands("'"+name+"'", lists[0], "the condition of the policy clusterdeployment-platform.muster.io")
					stands("'"+name+"'", lists[1], "the variable platform of the policy clusterdeployment-platform.muster.io")
				}
			}
			stands("`"+name, string(page), "docs/spec/clusterpool.md")
		}
	}
	assert.Equal(t, 2, found)
}

// rules are all of a schema, one after the other.
func rules(schema apiextensionsv1.JSONSchemaProps) string {
	all := ""
	for _, rule := range schema.XValidations {
		all += rule.Rule + "\n"
	}
	return all
}
