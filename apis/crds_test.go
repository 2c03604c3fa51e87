// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/crd"
)

// ourCRDs reads every CRD that this module generates.
func ourCRDs(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := fs.Glob(crd.FS, "*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files, "no CRD is generated")
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		data, err := crd.FS.ReadFile(file)
		require.NoError(t, err)
		crds = append(crds, decodeCRD(t, file, data))
	}
	return crds
}

func decodeCRD(t *testing.T, file string, data []byte) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	c := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(data, c), "reading %s", file)
	return c
}

// node is one place in a schema.
type node struct {
	// path from the root: .spec.size, .status.conditions[].type, .spec.labels{} for the values of a map.
	path   string
	schema *apiextensionsv1.JSONSchemaProps
	// value says that the node is the value of a map.
	value bool
}

// walk calls visit for schema and everything below it, in a stable order. It goes no deeper where visit says false.
func walk(n node, visit func(node) bool) {
	if !visit(n) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.schema.Properties)) {
		walk(node{path: n.path + "." + name, schema: new(n.schema.Properties[name])}, visit)
	}
	if n.schema.Items != nil && n.schema.Items.Schema != nil {
		walk(node{path: n.path + "[]", schema: n.schema.Items.Schema}, visit)
	}
	if n.schema.AdditionalProperties != nil && n.schema.AdditionalProperties.Schema != nil {
		walk(node{path: n.path + "{}", schema: n.schema.AdditionalProperties.Schema, value: true}, visit)
	}
}

// isObjectHead says that the path is one of the fields that every object has and that the API machinery describes.
func isObjectHead(path string) bool {
	return path == ".apiVersion" || path == ".kind" || path == ".metadata"
}

// preserves says that the node keeps fields that its schema does not name.
func preserves(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
}
