// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobjects_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/nodeobjects"
)

// The page says to users of other clusters which rights node access needs: those that hosted clusters give the node manager.
func TestThePageHasTheRightsOfTheNodeManager(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "spec", "node-access.md"))
	require.NoError(t, err)
	objects, err := nodeobjects.Render(nodeobjects.Settings{ClusterDNS: netip.MustParseAddr("10.96.0.10"), DNSImage: "dns"})
	require.NoError(t, err)
	code := func(names ...string) string { return "`" + strings.Join(names, "`, `") + "`" }
	rows := 0
	for document := range bytes.SplitSeq(objects, []byte("\n---\n")) {
		role := rbacv1.Role{} // a ClusterRole has the same rules
		require.NoError(t, yaml.Unmarshal(document, &role))
		if !strings.HasSuffix(role.Kind, "Role") || role.Name != "muster:node-manager" {
			continue
		}
		for _, rule := range role.Rules {
			group, resources := "", code(rule.Resources...)
			if rule.APIGroups[0] != "" {
				group = " " + code(rule.APIGroups...)
			}
			if role.Namespace != "" {
				resources += " in " + code(role.Namespace)
			}
			if len(rule.ResourceNames) > 0 {
				resources += ": " + code(rule.ResourceNames...)
			}
			assert.Contains(t, string(page), "|"+group+" | "+resources+" | "+code(rule.Verbs...)+" |\n")
			rows++
		}
	}
	assert.Equal(t, rows, strings.Count(string(page), "\n| `certificates.k8s.io` |")+strings.Count(string(page), "\n| | `"), "no right more")
}
