// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

func TestCredentialsDoNotPrint(t *testing.T) {
	access := provision.Access{Kubeconfig: []byte("the kubeconfig"), Password: "the password"}
	encoded, err := json.Marshal(map[string]any{"access": access})
	require.NoError(t, err)
	for _, text := range []string{
		fmt.Sprint(access), fmt.Sprint(&access), fmt.Sprintf("%v %+v %#v %s %q %x", access, access, access, access, access, access),
		fmt.Sprint(access.MarshalLog()), access.String(), string(encoded),
	} {
		assert.NotContains(t, text, "the password")
		assert.NotContains(t, text, "the kubeconfig")
		assert.NotContains(t, text, fmt.Sprintf("%x", "the password"))
	}
}

// Each package beside the contract that is a runtime of hosted clusters passes it.
func TestEveryRuntimePassesTheContract(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	runtimes, tested := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		switch name := filepath.Dir(file); {
		case strings.HasSuffix(file, "_test.go"):
			tested[name] = tested[name] || strings.Contains(string(text), "contract.Run(")
		case strings.Contains(string(text), "\ntype Runtime struct"):
			runtimes[name] = true
		}
	}
	assert.GreaterOrEqual(t, len(runtimes), 3)
	for name := range runtimes {
		assert.True(t, tested[name], "%s is a runtime: it needs a test that calls contract.Run", name)
	}
}
