// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package structure

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const modulePath = "github.com/muster-io/muster/"

// typesOfKinds are the packages of apis that hold types of custom resources and what goes with them: they are values.
var typesOfKinds = regexp.MustCompile(`^apis/(.+/v[0-9][a-z0-9]*|hive/.*)$`)

// Impurities returns the imports by which a pure package depends on a package of this repository that is not pure itself, each as
// "importer imports imported", sorted. The linter's configuration says which packages are pure, and refuses clients, clocks and loggers in
// them; with this rule, they do not come in through another package either.
func Impurities(root string) ([]string, error) {
	pure, err := purePackages(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		return nil, err
	}
	var found []string
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != root && ignored(entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		if !pure(filepath.ToSlash(dir)) {
			return nil
		}
		imported, err := imports(file)
		if err != nil {
			return err
		}
		for _, other := range imported {
			if !pure(other) && !typesOfKinds.MatchString(other) {
				found = append(found, filepath.ToSlash(dir)+" imports "+other)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the imports below %s: %w", root, err)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// imports are the packages of this repository that a file imports, by their directory.
func imports(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if dir, own := strings.CutPrefix(imported, modulePath); own {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// purePackages reads which directories the linter's rule "pure" is about.
func purePackages(config string) (func(dir string) bool, error) {
	text, err := os.ReadFile(config)
	if err != nil {
		return nil, err
	}
	var linter struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Files []string `yaml:"files"`
					} `yaml:"rules"`
				} `yaml:"depguard"`
			} `yaml:"settings"`
		} `yaml:"linters"`
	}
	if err := yaml.Unmarshal(text, &linter); err != nil {
		return nil, fmt.Errorf("reading %s: %w", config, err)
	}
	var globs []string
	for _, file := range linter.Linters.Settings.Depguard.Rules["pure"].Files {
		if glob, found := strings.CutPrefix(file, "**/internal/"); found {
			globs = append(globs, glob)
		}
	}
	if len(globs) == 0 {
		return nil, fmt.Errorf("reading %s: there is no rule \"pure\" for directories", config)
	}
	return func(dir string) bool {
		_, below, internal := strings.Cut(dir, "internal/")
		top, _, _ := strings.Cut(below, "/")
		return internal && slices.ContainsFunc(globs, func(glob string) bool {
			if only, alone := strings.CutSuffix(glob, "/*.go"); alone { // without the packages below
				return only == below
			}
			matched, err := path.Match(strings.TrimSuffix(glob, "/**"), top)
			return err == nil && matched
		})
	}, nil
}
