// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplanetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProgramIsFoundAtTheRootOfTheWorkspace(t *testing.T) {
	t.Setenv(programVariable, "")
	root := t.TempDir()
	deep := filepath.Join(root, "module", "internal", "package")
	require.NoError(t, os.MkdirAll(deep, 0o700))
	t.Chdir(deep)
	var missing *missingError
	_, err := findProgram()
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, err.Error(), "no go.work above")

	require.NoError(t, os.WriteFile(filepath.Join(root, "go.work"), nil, 0o600))
	_, err = findProgram()
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, err.Error(), "make controlplane")

	program := filepath.Join(root, "bin", "controlplane")
	require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o700))
	require.NoError(t, os.WriteFile(program, nil, 0o700))
	found, err := findProgram()
	require.NoError(t, err)
	assert.Equal(t, program, found)

	t.Setenv(programVariable, "/elsewhere/controlplane")
	found, err = findProgram()
	require.NoError(t, err)
	assert.Equal(t, "/elsewhere/controlplane", found)
}

func TestProgramThatFailsIsExplainedInItsOwnWords(t *testing.T) {
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "controlplane")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		return path
	}
	_, err := startProgram(script(`echo "etcd is missing: run make controlplane" >&2; exit 3`))
	var missing *missingError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, "etcd is missing: run make controlplane", err.Error())

	_, err = startProgram(script(`echo "disk full" >&2; exit 1`))
	require.EqualError(t, err, "exit status 1\ndisk full")
}
