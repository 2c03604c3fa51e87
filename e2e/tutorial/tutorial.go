// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tutorial reads the manifests of a page of the documentation, so that tests create what readers create.
package tutorial

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/e2e/checkout"
)

// Page is the manifests of a page, in their order.
type Page struct {
	name    string
	Objects []*unstructured.Unstructured
}

var fence = regexp.MustCompile("^( *)```(.*)$")

// Read reads the blocks of YAML of a page below docs.
func Read(name string) (*Page, error) {
	path, err := checkout.Path("docs", name)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a page of the documentation: %w", err)
	}
	page := &Page{name: name}
	for number, block := range blocks(string(text)) {
		for document := range strings.SplitSeq(block, "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
				return nil, fmt.Errorf("block %d of YAML of %s: %w", number+1, name, err)
			}
			page.Objects = append(page.Objects, object)
		}
	}
	return page, nil
}

// blocks are the contents of blocks of YAML. A block in a list is indented as its fence is.
func blocks(text string) (found []string) {
	var lines []string
	indent, inside, wanted := "", false, false
	for line := range strings.SplitSeq(text, "\n") {
		switch m := fence.FindStringSubmatch(line); {
		case m != nil && inside:
			if wanted {
				found = append(found, strings.Join(lines, "\n"))
			}
			inside, lines = false, nil
		case m != nil:
			indent, inside, wanted = m[1], true, m[2] == "yaml"
		case inside:
			lines = append(lines, strings.TrimPrefix(line, indent))
		}
	}
	return found
}

// Into reads the first object of a kind into one of its type.
func (p *Page) Into(kind string, object any) error {
	for _, one := range p.Objects {
		if one.GetKind() == kind {
			return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(one.Object, object, true)
		}
	}
	return fmt.Errorf("%s has no %s", p.name, kind)
}
