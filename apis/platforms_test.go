// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"os"
	"path/filepath"
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
