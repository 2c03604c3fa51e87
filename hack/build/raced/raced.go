// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package raced tells the packages whose tests need the race detector from those whose tests have nothing to race with. A test
// binary with the detector needs all of its libraries compiled for it, and runs several times slower.
package raced

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// concurrent are imports whose users share memory between goroutines, or have their code called in goroutines of the library.
var concurrent = []string{
	"golang.org/x/sync/", "k8s.io/client-go/informers", "k8s.io/client-go/tools/cache", "net/http", "net/http/httptest", "sigs.k8s.io/controller-runtime",
	"sync", "sync/atomic", "testing/synctest",
}

// withoutGoroutines are packages below those imports that only hold functions and types.
var withoutGoroutines = []string{
	"sigs.k8s.io/controller-runtime/pkg/client", "sigs.k8s.io/controller-runtime/pkg/controller/controllerutil", "sigs.k8s.io/controller-runtime/pkg/log",
	"sigs.k8s.io/controller-runtime/pkg/scheme",
}

// Split returns the import paths of a module's packages: those that need the race detector, and those that need to run without it.
// A package that has other code for builds with the detector is both: what ships is tested, too.
func Split(ctx context.Context, dir string) (raced, plain []string, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{.ImportPath}} {{.Dir}}", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("listing the packages of %s: %w", dir, err)
	}
	for line := range strings.Lines(string(text)) {
		path, directory, _ := strings.Cut(strings.TrimSpace(line), " ")
		needed, differs, err := read(directory)
		if err != nil {
			return nil, nil, err
		}
		if needed {
			raced = append(raced, path)
		}
		if !needed || differs {
			plain = append(plain, path)
		}
	}
	return raced, plain, nil
}

// read reports whether a file of the package, tests included, starts a goroutine or imports what does, and whether one that is no test
// is for builds with the race detector alone.
func read(dir string) (needed, differs bool, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return false, false, fmt.Errorf("listing the files of %s: %w", dir, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return false, false, fmt.Errorf("parsing a file of %s: %w", dir, err)
		}
		needed = needed || shares(parsed)
		differs = differs || !strings.HasSuffix(file, "_test.go") && slices.ContainsFunc(parsed.Comments, func(c *ast.CommentGroup) bool { return c.List[0].Text == "//go:build race" })
	}
	return needed, differs, nil
}

func shares(file *ast.File) bool {
	for _, spec := range file.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil && isConcurrent(path) {
			return true
		}
	}
	found := false
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt, *ast.SelectStmt:
			found = true
		case *ast.CallExpr:
			if call, ok := node.Fun.(*ast.SelectorExpr); ok && (call.Sel.Name == "Parallel" || call.Sel.Name == "RunParallel") {
				found = true
			}
		}
		return !found
	})
	return found
}

func isConcurrent(path string) bool {
	if strings.HasSuffix(path, "/apis/controlplanetest") {
		return true
	}
	if slices.Contains(withoutGoroutines, path) {
		return false
	}
	for _, prefix := range concurrent {
		if path == prefix || strings.HasPrefix(path, strings.TrimSuffix(prefix, "/")+"/") {
			return true
		}
	}
	return false
}
