// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/e2e/checkout"
)

// A newcomer sees five steps, of which each names something that is there.
func TestTheLastPageIsFiveSteps(t *testing.T) {
	path, err := checkout.Path("pool-operator/internal/controlplane/commands.go")
	require.NoError(t, err)
	plane, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(plane), `"--service-account-issuer=`+audience+`"`, "the API server accepts tokens for its issuer")
	for name, kept := range map[string]bool{"kept": true, "taken down": false} {
		t.Run(name, func(t *testing.T) {
			lines := nextSteps(kept, "/tmp/demo", "/tmp/demo/admin.kubeconfig", "/tmp/demo/my-cluster.kubeconfig", "http://127.0.0.1:11000/console")
			var steps []string
			for _, line := range lines {
				if strings.HasPrefix(line, "  ") {
					steps = append(steps, line)
				}
			}
			assert.Len(t, steps, 5)
			assert.Equal(t, kept, strings.Contains(strings.Join(steps, " "), "http://127.0.0.1:11000/console"))
			assert.Equal(t, kept, strings.Contains(strings.Join(steps, " "), "--audience=agent-service --audience="+audience), "Pools and Addresses ask the API server with the token")
			for word := range strings.FieldsSeq(strings.Join(steps, " ")) {
				word = strings.Trim(word, "()*")
				if !strings.HasPrefix(word, "docs/") && !strings.HasPrefix(word, "hack/") && !strings.HasPrefix(word, "deploy/") && !strings.HasSuffix(word, ".md") {
					continue
				}
				path, err := checkout.Path(strings.TrimSuffix(word, "/*.yaml"))
				require.NoError(t, err)
				_, err = os.Stat(path)
				assert.NoError(t, err, "a step names %s", word)
			}
		})
	}
}

// An Agent is created before its machine reports its name; until then it is not shown.
func TestAMachineAppearsByItsName(t *testing.T) {
	named := agentv1.Agent{}
	named.Status.Inventory.Hostname = "host-1"
	moved := *named.DeepCopy()
	moved.Status.Inventory.Hostname = "host-2"
	moved.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Name: "blue"}
	moved.Status.Progress.CurrentStage = "Done"
	rows, notes := machineRows([]agentv1.Agent{{}, named, moved})
	assert.Equal(t, []string{"machine host-1: free", "machine host-2: cluster blue Done"}, notes)
	require.Len(t, rows, 2)
	assert.Equal(t, "host-1", rows[0][0])
}
