// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package structure measures the packages, types and interfaces of a tree of Go sources, so that none outgrows its reader.
package structure

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of what a reader keeps in mind at a time.
const (
	// MaxLines is how many lines the files of a package have at most, without tests and generated files.
	MaxLines = 3000
	// MaxMethods is how many methods are declared on a type at most, in all files of its package; those of embedded types do not count.
	MaxMethods = 40
	// MaxInterface is how many methods an interface declares at most: those of one role. One that several roles are needed for embeds their interfaces.
	MaxInterface = 8
)

// Excess is a package, type or interface that is larger than its limit.
type Excess struct {
	// Name is the package's directory below the root; for a type or interface with the type's name after a dot: "pool-operator/internal/poolplan.pass".
	Name string
	// What names the unit that is counted: "lines", "methods", or "methods of the interface".
	What string
	// Count is how many there are.
	Count int
	// Limit is how many there may be.
	Limit int
}

func (e Excess) String() string {
	return fmt.Sprintf("%s: %d %s, at most %d are allowed", e.Name, e.Count, e.What, e.Limit)
}

// Excesses measures all Go sources below root and returns what is over a limit, sorted by name. Generated files, and directories
// that the go command ignores, are left out; sources of tests count for types and interfaces.
func Excesses(root string) ([]Excess, error) {
	packages := map[string]*measured{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && ignored(entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		return read(packages, filepath.ToSlash(dir), path)
	})
	if err != nil {
		return nil, fmt.Errorf("measuring %s: %w", root, err)
	}
	var over []Excess
	for dir, p := range packages {
		over = append(over, p.excesses(dir)...)
	}
	slices.SortFunc(over, func(a, b Excess) int { return strings.Compare(a.Name+a.What, b.Name+b.What) })
	return over, nil
}

// ignored reports whether the go command ignores a directory of that name, or the build fills it.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || slices.Contains([]string{"bin", "dist", "site", "testdata", "vendor"}, name)
}

// measured is what the files of one package have.
type measured struct {
	lines int
	// methods are counted by the name of their type.
	methods, interfaces map[string]int
}

// read adds a source file to its package. The external tests of a package are a package of their own.
func read(packages map[string]*measured, dir, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	key := dir
	if strings.HasSuffix(file.Name.Name, "_test") {
		key += "_test"
	}
	p := packages[key]
	if p == nil {
		p = &measured{methods: map[string]int{}, interfaces: map[string]int{}}
		packages[key] = p
	}
	if !strings.HasSuffix(path, "_test.go") {
		p.lines += bytes.Count(text, []byte("\n"))
	}
	p.add(file)
	return nil
}

// add counts the methods and the interfaces that a file declares.
func (p *measured) add(file *ast.File) {
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				p.methods[receiver(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				declared, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if i, ok := declared.Type.(*ast.InterfaceType); ok {
					p.interfaces[declared.Name.Name] = declares(i)
				}
			}
		}
	}
}

// receiver is the name of the type that a method is declared on: T for T, *T and *T[K].
func receiver(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.ParenExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// declares is how many methods an interface has beside those of interfaces that it embeds.
func declares(i *ast.InterfaceType) int {
	n := 0
	for _, field := range i.Methods.List {
		n += len(field.Names)
	}
	return n
}

// excesses are those of the package in dir.
func (p *measured) excesses(dir string) []Excess {
	var over []Excess
	check := func(name, what string, count, limit int) {
		if count > limit {
			over = append(over, Excess{Name: name, What: what, Count: count, Limit: limit})
		}
	}
	check(dir, "lines", p.lines, MaxLines)
	for name, n := range p.methods {
		check(dir+"."+name, "methods", n, MaxMethods)
	}
	for name, n := range p.interfaces {
		check(dir+"."+name, "methods of the interface", n, MaxInterface)
	}
	return over
}
