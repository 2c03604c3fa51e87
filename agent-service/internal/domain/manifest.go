// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxManifest is how large one manifest may be, in bytes.
const maxManifest = 1 << 20

// manifestFolders are where manifests of a cluster can be.
var manifestFolders = []string{"manifests", "openshift"}

// IsManifest is true for names of manifests among the files of a cluster.
func IsManifest(name string) bool {
	folder, file, there := strings.Cut(name, "/")
	return there && file != "" && !strings.Contains(file, "/") && slices.Contains(manifestFolders, folder)
}

// CheckManifest is what is wrong with a manifest, nil for nothing.
func CheckManifest(name string, content []byte) error {
	if !IsManifest(name) || len(name) > 512 {
		return Refuse(Invalid, "ManifestNameInvalid", "%q: a manifest is a file in manifests or openshift", Truncate(name, 64))
	}
	if len(content) == 0 || len(content) > maxManifest {
		return Refuse(Invalid, "ManifestInvalid", "a manifest has 1 to %d bytes", maxManifest)
	}
	var parsed any
	for document := range strings.SplitSeq(string(content), "\n---") {
		if err := yaml.Unmarshal([]byte(document), &parsed); err != nil {
			return Refuse(Invalid, "ManifestInvalid", "manifest %s is neither YAML nor JSON", name)
		}
	}
	return nil
}
