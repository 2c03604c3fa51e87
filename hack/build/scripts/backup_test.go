// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unsaved are the kinds that hack/backup leaves out, and why.
var unsaved = map[string]string{
	"agents.agent-install.openshift.io":                "a machine that registers has a new one: one that was restored could have it installed again",
	"agentreservations.agent-install.openshift.io":     "they end within a day",
	"discoveredmachines.metal3.io":                     "discovery-operator makes them of what Ironic says",
	"metal3dataclaims.infrastructure.cluster.x-k8s.io": "they belong to machines, whose controllers make them",
	"metal3datas.infrastructure.cluster.x-k8s.io":      "ipam-operator makes them for claims",
}

// Every kind is saved, or the test says why it is not.
func TestABackupHasEveryKind(t *testing.T) {
	script, err := os.ReadFile(hack(t, "backup"))
	require.NoError(t, err)
	saved := regexp.MustCompile(`(?s)\nkinds='\n(.*?)'`).FindSubmatch(script)
	require.Len(t, saved, 2)
	files, err := filepath.Glob(hack(t, "../apis/crd/*_*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		group, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		kind := plural + "." + group
		assert.NotEqual(t, unsaved[kind] != "", strings.Contains(" "+strings.Join(strings.Fields(string(saved[1])), " ")+" ", " "+kind+" "), "%s: saved, or %q", kind, unsaved[kind])
	}
}
