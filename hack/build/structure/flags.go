// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package structure

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// settles matches functions that set or validate a setting without using it.
var settles = regexp.MustCompile(`(?i)^(bind|validate|parse)`)

// UnusedFlags returns the flags of operators that no function uses, each as "directory: field", sorted. Such a flag can be set and has no effect.
func UnusedFlags(root string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(root, "*", "internal", "app"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, dir := range dirs {
		unused, err := unusedFlags(dir)
		if err != nil {
			return nil, fmt.Errorf("reading the flags of %s: %w", dir, err)
		}
		name, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, err
		}
		for _, field := range unused {
			found = append(found, filepath.ToSlash(name)+": "+field)
		}
	}
	slices.Sort(found)
	return found, nil
}

// unusedFlags are the fields of a package that a function named bind gives to a flag, and that no other function reads.
func unusedFlags(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	bound, used := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		_, parsed, err := source(file)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			switch {
			case !ok || function.Body == nil:
			case strings.EqualFold(function.Name.Name, "bind"):
				fields(function.Body, bound, true)
			case !settles.MatchString(function.Name.Name):
				fields(function.Body, used, false)
			}
		}
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(bound)), func(field string) bool { return used[field] }), nil
}

// fields collects the names of fields that a function selects, or of those alone whose address it takes.
func fields(body ast.Node, into map[string]bool, addresses bool) {
	ast.Inspect(body, func(node ast.Node) bool {
		if address, ok := node.(*ast.UnaryExpr); ok && address.Op == token.AND && addresses {
			node = address.X
		} else if addresses {
			return true
		}
		if field, ok := node.(*ast.SelectorExpr); ok {
			into[field.Sel.Name] = true
		}
		return true
	})
}
