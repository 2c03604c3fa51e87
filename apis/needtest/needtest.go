// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package needtest says in one place what happens to a test whose real part this machine does not have: it is skipped, and fails where CI=true.
package needtest

import (
	"os"
	"path/filepath"
	"testing"
)

// Part goes on with the test if the part that it needs is there, and ends it otherwise, with a sentence that names the part and how to get it.
func Part(t testing.TB, there bool, sentence string) {
	t.Helper()
	switch {
	case there:
	case os.Getenv("CI") == "true":
		t.Fatal(sentence)
	default:
		t.Skip(sentence)
	}
}

// File is Part for a file.
func File(t testing.TB, path, sentence string) {
	t.Helper()
	_, err := os.Stat(path)
	Part(t, err == nil, sentence)
}

// NoError is Part for what was looked for: the error says what is missing.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		Part(t, false, err.Error())
	}
}

// fieldManifests names the directory of what users of other projects have.
const fieldManifests = "FIELD_MANIFESTS"

// Field returns a path below the directory that the variable FIELD_MANIFESTS names: crds has the kinds that users of other projects have, samples
// their manifests. Where they are not at hand the test is skipped, whatever CI says: a checkout does not have them.
func Field(t testing.TB, path ...string) string {
	t.Helper()
	at := filepath.Join(append([]string{os.Getenv(fieldManifests)}, path...)...)
	if _, err := os.Stat(at); err != nil || os.Getenv(fieldManifests) == "" { //nolint:gosec // the variable is set by those who test
		t.Skipf("%s does not name a directory with %s, so that ours cannot be compared with it", fieldManifests, filepath.Join(path...))
	}
	return at
}
