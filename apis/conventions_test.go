// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// finding is a breach of a convention at one place.
type finding struct {
	crd, path, problem string
}

func (f finding) String() string { return fmt.Sprintf("%s %s: %s", f.crd, f.path, f.problem) }

// TestConventions holds every generated CRD to the rules for API types; conventionExceptions lists what is exempt and why.
func TestConventions(t *testing.T) {
	var findings []finding
	for _, c := range ourCRDs(t) {
		findings = append(findings, kindFindings(c)...)
		for i := range c.Spec.Versions {
			findings = append(findings, versionFindings(c, &c.Spec.Versions[i])...)
		}
	}
	used := map[string]bool{}
	for _, f := range findings {
		exception := exceptionFor(conventionExceptions, f.crd, f.path)
		if exception == "" {
			assert.Fail(t, f.String())
			continue
		}
		used[exception] = true
	}
	for exception := range conventionExceptions {
		assert.True(t, used[exception], "the exception %q excuses nothing any more; remove it", exception)
	}
}

// TestShortNamesAreUnique keeps one short name from meaning two kinds.
func TestShortNamesAreUnique(t *testing.T) {
	owner := map[string]string{}
	for _, c := range ourCRDs(t) {
		names := append(slices.Clone(c.Spec.Names.ShortNames), c.Spec.Names.Plural, c.Spec.Names.Singular)
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			assert.Empty(t, owner[name], "%s is a name of %s and of %s", name, owner[name], c.Name)
			owner[name] = c.Name
		}
	}
}

// exceptionFor returns the exception that covers the path: the path itself or a part of it that is followed by a deeper one.
func exceptionFor(exceptions map[string]string, crd, path string) string {
	for exception := range exceptions {
		of, prefix, _ := strings.Cut(exception, " ")
		if of != crd && of != "*" {
			continue
		}
		rest, ok := strings.CutPrefix(path, prefix)
		if ok && (rest == "" || strings.ContainsRune(".[{", rune(rest[0]))) {
			return exception
		}
	}
	return ""
}

func kindFindings(c *apiextensionsv1.CustomResourceDefinition) []finding {
	var findings []finding
	add := func(problem string) { findings = append(findings, finding{c.Name, "kind", problem}) }
	if !slices.Contains(c.Spec.Names.Categories, "muster") {
		add("is not in the category muster")
	}
	if len(c.Spec.Names.ShortNames) == 0 {
		add("has no short name")
	}
	return findings
}

func versionFindings(c *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) []finding {
	findings := columnFindings(c, v)
	root := v.Schema.OpenAPIV3Schema
	if status, ok := root.Properties["status"]; ok && len(status.Properties) > 0 && (v.Subresources == nil || v.Subresources.Status == nil) {
		findings = append(findings, finding{c.Name, ".status", "is no subresource"})
	}
	walk(node{schema: root}, func(n node) bool {
		if isObjectHead(n.path) {
			return false
		}
		for _, problem := range schemaProblems(n) {
			findings = append(findings, finding{c.Name, n.path, problem})
		}
		return true
	})
	return findings
}

func columnFindings(c *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) []finding {
	var findings []finding
	hasAge, hasState := false, false
	for _, column := range v.AdditionalPrinterColumns {
		if column.Description == "" {
			findings = append(findings, finding{c.Name, "column " + column.Name, "has no description"})
		}
		hasAge = hasAge || column.JSONPath == ".metadata.creationTimestamp"
		hasState = hasState || strings.HasPrefix(column.JSONPath, ".status.")
	}
	if !hasAge {
		findings = append(findings, finding{c.Name, "columns", "do not say how old the object is"})
	}
	if status := v.Schema.OpenAPIV3Schema.Properties["status"]; !hasState && len(status.Properties) > 0 {
		findings = append(findings, finding{c.Name, "columns", "do not say how the object is: none shows its status"})
	}
	return findings
}

// schemaProblems lists what one place of a schema lacks.
func schemaProblems(n node) []string {
	var problems []string
	s := n.schema
	element := strings.HasSuffix(n.path, "[]") || n.value
	if strings.TrimSpace(s.Description) == "" && !element {
		problems = append(problems, "has no description")
	}
	switch s.Type {
	case "string":
		// The values of a map are bounded by the number of its entries.
		if !n.value && s.MaxLength == nil && len(s.Enum) == 0 && s.Pattern == "" && s.Format == "" {
			problems = append(problems, "is a string without enum, pattern or maxLength")
		}
	case "array":
		if s.MaxItems == nil {
			problems = append(problems, "is a list without maxItems")
		}
		if s.XListType == nil {
			problems = append(problems, "is a list without a list type")
		}
	case "object":
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil && s.MaxProperties == nil {
			problems = append(problems, "is a map without maxProperties")
		}
	}
	for _, rule := range s.XValidations {
		if len(strings.Fields(rule.Message)) < 3 && rule.MessageExpression == "" {
			problems = append(problems, fmt.Sprintf("has a rule that does not say in a sentence what to write instead: %s", rule.Rule))
		}
	}
	return problems
}
