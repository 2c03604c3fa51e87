// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package structure

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// MaxOneFile is how many lines a package of a controller has at most, without tests, whose steps need no files of their own.
const MaxOneFile = 400

// steps are the methods of a Reconciler that stand in a file of their own in a larger package.
var steps = map[string]string{"observe": "observe.go", "execute": "execute.go", "SetupWithManager": "watches.go"}

// Misplaced returns the steps of controllers that do not stand in the file that is named for them, each as "file: method belongs to file",
// sorted. Reconcile stands in controller.go in every package; another reconciler of the same package, such as that of clusters with an
// install object, has a file of its own.
func Misplaced(root string) ([]string, error) {
	var found []string
	lines := map[string]int{}
	places := map[string][]string{}
	err := controllers(root, func(file string, text []byte, parsed *ast.File) {
		dir := path.Dir(file)
		if !strings.Contains(file, "/internal/controller/") {
			return
		}
		lines[dir] += bytes.Count(text, []byte("\n"))
		for _, declaration := range parsed.Decls {
			method, ok := declaration.(*ast.FuncDecl)
			if !ok || method.Recv == nil || !slices.Contains([]string{"Reconciler", "Controller"}, receiver(method.Recv.List[0].Type)) {
				continue
			}
			name := method.Name.Name
			if name == "Reconcile" && path.Base(file) != "controller.go" {
				found = append(found, file+": Reconcile belongs to controller.go")
			}
			if is, ok := steps[name]; ok && path.Base(file) != is {
				places[dir] = append(places[dir], file+": "+name+" belongs to "+is)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for dir, misplaced := range places {
		if lines[dir] > MaxOneFile {
			found = append(found, misplaced...)
		}
	}
	slices.Sort(found)
	return found, nil
}

// plans matches imports of packages with the pure plan of a controller.
var plans = regexp.MustCompile(`/internal/([a-z]+plan|hoststate|inventory)$`)

// Unplanned returns the packages with a Reconcile that import no plan, sorted.
func Unplanned(root string) ([]string, error) {
	reconciles, planned := map[string]bool{}, map[string]bool{}
	err := controllers(root, func(file string, _ []byte, parsed *ast.File) {
		if !strings.Contains(file, "/internal/controller/") {
			return
		}
		dir := path.Dir(file)
		for _, declaration := range parsed.Decls {
			if method, ok := declaration.(*ast.FuncDecl); ok && method.Recv != nil && method.Name.Name == "Reconcile" {
				reconciles[dir] = true
			}
		}
		for _, spec := range parsed.Imports {
			if plans.MatchString(strings.Trim(spec.Path.Value, `"`)) {
				planned[dir] = true
			}
		}
	})
	var found []string
	for dir := range reconciles {
		if !planned[dir] {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	return found, err
}

// StatusPatches returns the files of operators that write a status by another way than server-side apply, sorted.
func StatusPatches(root string) ([]string, error) {
	var found []string
	err := controllers(root, func(file string, _ []byte, parsed *ast.File) {
		ast.Inspect(parsed, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Patch" && method.Sel.Name != "Update" {
				return true
			}
			if of, ok := method.X.(*ast.CallExpr); ok {
				if status, ok := of.Fun.(*ast.SelectorExpr); ok && (status.Sel.Name == "Status" || status.Sel.Name == "SubResource") {
					found = append(found, file)
				}
			}
			return true
		})
	})
	slices.Sort(found)
	return slices.Compact(found), err
}

// controllers calls do for each source of a controller, or of the engine that several share, with its path below root.
func controllers(root string, do func(file string, text []byte, parsed *ast.File)) error {
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && at != root && ignored(entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(at) != ".go" || strings.HasSuffix(at, "_test.go"):
			return nil
		}
		name, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		file := filepath.ToSlash(name)
		if !strings.Contains(file, "/internal/controller/") && !strings.Contains(file, "/internal/engine/") {
			return nil
		}
		text, parsed, err := source(at)
		if err != nil {
			return err
		}
		do(file, text, parsed)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the controllers below %s: %w", root, err)
	}
	return nil
}

// source is a file of Go, as text and parsed.
func source(file string) (text []byte, parsed *ast.File, err error) {
	if text, err = os.ReadFile(file); err != nil {
		return nil, nil, err
	}
	parsed, err = parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	return text, parsed, err
}
