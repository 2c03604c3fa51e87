// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/muster-io/muster/apis/needtest"
)

// theirCRDs reads the CRDs that users have installed, by name. One kind may be there in several versions of its project.
func theirCRDs(t *testing.T) map[string][]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	fieldCRDs := needtest.Field(t, "crds")
	crds := map[string][]*apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, filepath.WalkDir(fieldCRDs, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		c := decodeCRD(t, path, data)
		crds[c.Name] = append(crds[c.Name], c)
		return nil
	}))
	return crds
}

// TestCompatibility compares every CRD with the one of that name that users have installed: an object that fits theirs must fit ours and mean the same.
// knownDifferences lists where it does not, and why.
func TestCompatibility(t *testing.T) {
	theirs := theirCRDs(t)
	used := map[string]bool{}
	compared := 0
	for _, ours := range ourCRDs(t) {
		for _, their := range theirs[ours.Name] {
			compared++
			for _, f := range compareCRDs(ours, their) {
				difference := cmp.Or(exceptionFor(knownDifferences, f.crd, f.path), exceptionFor(knownDifferences, f.crd, f.problem))
				if difference == "" {
					assert.Fail(t, f.String())
					continue
				}
				used[difference] = true
			}
		}
	}
	assert.Positive(t, compared, "none of our kinds is among those of the field")
	for difference := range knownDifferences {
		assert.True(t, used[difference], "the difference %q is none any more; remove it", difference)
	}
}

func compareCRDs(ours, theirs *apiextensionsv1.CustomResourceDefinition) []finding {
	var findings []finding
	add := func(path, format string, args ...any) {
		findings = append(findings, finding{ours.Name, path, fmt.Sprintf(format, args...)})
	}
	if ours.Spec.Scope != theirs.Spec.Scope {
		add("scope", "is %s, was %s", ours.Spec.Scope, theirs.Spec.Scope)
	}
	if ours.Spec.Names.Kind != theirs.Spec.Names.Kind || ours.Spec.Names.Singular != theirs.Spec.Names.Singular {
		add("names", "are %v, were %v", ours.Spec.Names, theirs.Spec.Names)
	}
	for _, name := range theirs.Spec.Names.ShortNames {
		if !slices.Contains(ours.Spec.Names.ShortNames, name) {
			add("names", "lack the short name %s", name)
		}
	}
	for i := range theirs.Spec.Versions {
		their := &theirs.Spec.Versions[i]
		at := slices.IndexFunc(ours.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == their.Name })
		if at < 0 {
			if their.Served {
				add("versions", "lack %s", their.Name)
			}
			continue
		}
		our := &ours.Spec.Versions[at]
		compareColumns(our, their, add)
		compareSubresources(our.Subresources, their.Subresources, add)
		compareSchemas("", our.Schema.OpenAPIV3Schema, their.Schema.OpenAPIV3Schema, add)
	}
	return findings
}

type addFinding func(path, format string, args ...any)

// compareColumns wants every column of theirs, of the same content, in the same order; others may stand between.
func compareColumns(ours, theirs *apiextensionsv1.CustomResourceDefinitionVersion, add addFinding) {
	last := -1
	for _, their := range theirs.AdditionalPrinterColumns {
		at := slices.IndexFunc(ours.AdditionalPrinterColumns, func(c apiextensionsv1.CustomResourceColumnDefinition) bool { return c.Name == their.Name })
		switch {
		case at < 0:
			add("column "+their.Name, "is missing")
			continue
		case ours.AdditionalPrinterColumns[at].JSONPath != their.JSONPath || ours.AdditionalPrinterColumns[at].Type != their.Type:
			add("column "+their.Name, "shows %s, showed %s", ours.AdditionalPrinterColumns[at].JSONPath, their.JSONPath)
		case ours.AdditionalPrinterColumns[at].Priority > their.Priority:
			add("column "+their.Name, "is shown in wide output only")
		case at < last:
			add("column "+their.Name, "stands elsewhere among the columns")
		}
		last = max(last, at)
	}
}

func compareSubresources(ours, theirs *apiextensionsv1.CustomResourceSubresources, add addFinding) {
	if theirs == nil {
		if ours != nil && ours.Status != nil {
			add("subresources", "make status one, so that an update of the object no longer writes it")
		}
		return
	}
	if theirs.Status != nil && (ours == nil || ours.Status == nil) {
		add("subresources", "lack status")
	}
	if theirs.Scale == nil {
		return
	}
	if ours == nil || ours.Scale == nil {
		add("subresources", "lack scale")
		return
	}
	if ours.Scale.SpecReplicasPath != theirs.Scale.SpecReplicasPath || ours.Scale.StatusReplicasPath != theirs.Scale.StatusReplicasPath {
		add("subresources", "scale something else")
	}
}

// compareSchemas says where a value that fits theirs does not fit ours, or where a field of theirs would be dropped.
func compareSchemas(path string, ours, theirs *apiextensionsv1.JSONSchemaProps, add addFinding) {
	if isObjectHead(path) {
		return
	}
	if ours.Type != theirs.Type || ours.Format != theirs.Format || ours.XIntOrString != theirs.XIntOrString {
		add(path, "is %s, was %s", typeOf(ours), typeOf(theirs))
		return
	}
	compareBounds(path, ours, theirs, add)
	compareObjects(path, ours, theirs, add)
	if theirs.Items != nil && theirs.Items.Schema != nil {
		if ours.Items == nil || ours.Items.Schema == nil {
			add(path, "says nothing about its elements")
		} else {
			compareSchemas(path+"[]", ours.Items.Schema, theirs.Items.Schema, add)
		}
	}
	if theirs.XListType != nil && ours.XListType != nil && *theirs.XListType != *ours.XListType {
		add(path, "is a list of type %s, was %s", *ours.XListType, *theirs.XListType)
	}
	if theirs.Nullable && !ours.Nullable {
		add(path, "cannot be null")
	}
	if preserves(theirs) && !preserves(ours) {
		add(path, "drops fields that it does not name")
	}
}

func compareObjects(path string, ours, theirs *apiextensionsv1.JSONSchemaProps, add addFinding) {
	for _, name := range ours.Required {
		if !slices.Contains(theirs.Required, name) {
			add(path+"."+name, "is required, was not")
		}
	}
	for name := range theirs.Properties {
		their := theirs.Properties[name]
		our, ok := ours.Properties[name]
		switch {
		case ok:
			compareSchemas(path+"."+name, &our, &their, add)
		case !preserves(ours):
			add(path+"."+name, "is missing, and would be dropped")
		}
	}
	if theirs.AdditionalProperties != nil && theirs.AdditionalProperties.Schema != nil {
		switch {
		case ours.AdditionalProperties != nil && ours.AdditionalProperties.Schema != nil:
			compareSchemas(path+"{}", ours.AdditionalProperties.Schema, theirs.AdditionalProperties.Schema, add)
		case !preserves(ours):
			add(path, "is no map any more")
		}
	}
}

// compareBounds says where ours takes less. Lengths and counts of what was unbounded may be bounded; the bound is generous.
func compareBounds(path string, ours, theirs *apiextensionsv1.JSONSchemaProps, add addFinding) {
	if len(ours.Enum) > 0 {
		for _, value := range theirs.Enum {
			if !slices.ContainsFunc(ours.Enum, func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }) {
				add(path, "does not take %s", value.Raw)
			}
		}
		if len(theirs.Enum) == 0 {
			add(path, "takes only certain words")
		}
	}
	if ours.Pattern != "" && ours.Pattern != theirs.Pattern {
		add(path, "must match %s, had to match %q", ours.Pattern, theirs.Pattern)
	}
	if ours.Default != nil && (theirs.Default == nil || string(ours.Default.Raw) != string(theirs.Default.Raw)) {
		add(path, "has the default %s", ours.Default.Raw)
	}
	if ours.Default == nil && theirs.Default != nil {
		add(path, "lost the default %s", theirs.Default.Raw)
	}
	if ours.Minimum != nil && (theirs.Minimum == nil || *ours.Minimum > *theirs.Minimum) {
		add(path, "is at least %v", *ours.Minimum)
	}
	if ours.Maximum != nil && (theirs.Maximum == nil || *ours.Maximum < *theirs.Maximum) {
		add(path, "is at most %v", *ours.Maximum)
	}
	compareLengths(path, ours, theirs, add)
}

func compareLengths(path string, ours, theirs *apiextensionsv1.JSONSchemaProps, add addFinding) {
	for _, bound := range []struct {
		what         string
		ours, theirs *int64
	}{
		{"characters", ours.MaxLength, theirs.MaxLength},
		{"elements", ours.MaxItems, theirs.MaxItems},
		{"entries", ours.MaxProperties, theirs.MaxProperties},
	} {
		if bound.ours != nil && bound.theirs != nil && *bound.ours < *bound.theirs {
			add(path, "has at most %d %s, could have %d", *bound.ours, bound.what, *bound.theirs)
		}
	}
	for _, bound := range []struct {
		what         string
		ours, theirs *int64
	}{
		{"characters", ours.MinLength, theirs.MinLength},
		{"elements", ours.MinItems, theirs.MinItems},
		{"entries", ours.MinProperties, theirs.MinProperties},
	} {
		if bound.ours != nil && (bound.theirs == nil || *bound.ours > *bound.theirs) {
			add(path, "needs at least %d %s", *bound.ours, bound.what)
		}
	}
}

func typeOf(schema *apiextensionsv1.JSONSchemaProps) string {
	if schema.XIntOrString {
		return "integer or string"
	}
	return strings.TrimSpace(schema.Type + " " + schema.Format)
}
