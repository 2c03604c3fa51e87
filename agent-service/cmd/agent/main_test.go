// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// module is the path of this module.
const module = "github.com/muster-io/muster/agent-service/"

// TestTheAgentHasNoDatabaseAndNoService: what runs on each discovered machine is downloaded by each of them.
func TestTheAgentHasNoDatabaseAndNoService(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	var own []string
	for path := range strings.FieldsSeq(string(output)) {
		if name, is := strings.CutPrefix(path, module); is {
			own = append(own, name)
		}
		for _, foreign := range []string{"github.com/uptrace/bun", "github.com/jackc/pgx", "modernc.org/sqlite", "k8s.io/", "sigs.k8s.io/", "net/http/httptest"} {
			assert.False(t, strings.HasPrefix(path, foreign), path)
		}
		assert.NotEqual(t, "database/sql", path)
	}
	assert.ElementsMatch(t, []string{"api", "client", "cmd/agent", "internal/agent", "internal/agent/registry", "internal/agentproto", "internal/diskimage", "internal/hardware", "internal/join", "internal/kubelet"}, own)
}
