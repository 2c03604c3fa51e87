// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package structure

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// classes are the questions about an error whose answer is the same for all controllers: apis/outcome maps them to what the queue does.
var classes = []string{
	"IsConflict", "IsAlreadyExists", "IsTooManyRequests", "SuggestsClientDelay", "IsTimeout", "IsServerTimeout", "IsServiceUnavailable", "IsInternalError",
	"IsUnexpectedServerError",
}

// Outcomes returns the places in the operators where a controller decides itself what an error means for the queue, sorted: a function that
// returns a reconcile.Result and asks for the class of an error, and a reconciler that is set up without outcome.Reconciler.
func Outcomes(root string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && ignored(entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || !strings.Contains(filepath.ToSlash(path), "/internal/"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Body != nil {
				for _, what := range decides(function) {
					found = append(found, filepath.ToSlash(name)+": "+function.Name.Name+" "+what)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the controllers below %s: %w", root, err)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// decides says what a function decides itself about errors of a pass.
func decides(function *ast.FuncDecl) []string {
	var found []string
	ends := returnsResult(function.Type)
	ast.Inspect(function.Body, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		of, name := selected(call.Fun)
		switch {
		case ends && of == "apierrors" && slices.Contains(classes, name):
			found = append(found, "asks "+of+"."+name)
		case of == "tracing" && (name == "Reconciler" || name == "ReconcilerOf") && len(call.Args) > 1 && !mapped(call.Args[1]):
			found = append(found, "sets up a reconciler without outcome.Reconciler")
		}
		return true
	})
	return found
}

// mapped reports whether an expression is a call of outcome.Reconciler.
func mapped(expression ast.Expr) bool {
	call, ok := expression.(*ast.CallExpr)
	if !ok {
		return false
	}
	of, name := selected(call.Fun)
	return of == "outcome" && name == "Reconciler"
}

// returnsResult reports whether a function returns a reconcile.Result, under either name.
func returnsResult(function *ast.FuncType) bool {
	return function.Results != nil && slices.ContainsFunc(function.Results.List, func(result *ast.Field) bool {
		of, name := selected(result.Type)
		return name == "Result" && (of == "ctrl" || of == "reconcile")
	})
}

// selected is the package and the name of a qualified identifier, whose type arguments do not count.
func selected(expression ast.Expr) (of, name string) {
	switch e := expression.(type) {
	case *ast.IndexExpr:
		return selected(e.X)
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return x.Name, e.Sel.Name
		}
	}
	return "", ""
}
