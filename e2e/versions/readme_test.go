// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package versions_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/e2e/checkout"
)

// pinned is the minor of a go.mod that requires Kubernetes.
func pinned(t *testing.T, path ...string) int {
	t.Helper()
	file, err := checkout.Path(path...)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	found := regexp.MustCompile(`k8s\.io/kubernetes v1\.([0-9]+)\.`).FindSubmatch(text)
	require.NotNil(t, found, file)
	minor, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return minor
}

// README.md says of every supported minor whether it is tried.
func TestTheReadmeSaysWhichMinorsAreTried(t *testing.T) {
	file, err := checkout.Path("README.md")
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	newest := pinned(t, "hack", "controlplane", "go.mod")
	require.Equal(t, oldest, pinned(t, "hack", "controlplane", "oldest", "go.mod"))
	between := pinned(t, "hack", "controlplane", "between", "go.mod")
	require.Equal(t, newest-emulated-1, between, "it is the newest that the API server of the tests does not emulate")
	require.Equal(t, oldest+2, between, "other minors are between those that are tried: name them in the table and here")
	require.GreaterOrEqual(t, oldest+1, between-reach(between), "a minor is tried by no API server: pin another set")
	for _, row := range []string{
		fmt.Sprintf("| 1.%d | `make test-oldest`", oldest),
		fmt.Sprintf("| 1.%d | `make test-oldest`, emulated by the API server of 1.%d |", oldest+1, between),
		fmt.Sprintf("| 1.%d | `make test-oldest` compiles it", between),
		fmt.Sprintf("| 1.%d to 1.%d | in `make test`, emulated by the API server of 1.%d |", newest-emulated, newest-1, newest),
		fmt.Sprintf("| 1.%d | in `make test`", newest),
	} {
		assert.Contains(t, string(text), row)
	}
}
