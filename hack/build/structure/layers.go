// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package structure

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	packageRow  = regexp.MustCompile("(?m)^\\| (`[a-z]+`(?:, `[a-z]+`)*) \\|")
	packageName = regexp.MustCompile("`([a-z]+)`")
)

// Layers returns what is wrong with the table of packages in a page, sorted: a package below dir that stands in no row, one that is not there,
// and imports of a row above.
func Layers(root, page, dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, entry := range entries {
		there[entry.Name()] = entry.IsDir()
	}
	var found []string
	level := map[string]int{}
	for i, columns := range packageRow.FindAllStringSubmatch(string(text), -1) {
		for _, one := range packageName.FindAllStringSubmatch(columns[1], -1) {
			if !there[one[1]] {
				found = append(found, one[1]+" is in the table and nowhere else")
			}
			level[one[1]] = i
		}
	}
	err = filepath.WalkDir(filepath.Join(root, dir), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		below, err := filepath.Rel(filepath.Join(root, dir), file)
		if err != nil {
			return err
		}
		of, _, _ := strings.Cut(filepath.ToSlash(below), "/")
		if _, known := level[of]; !known {
			found = append(found, of+" is not in the table")
		}
		imported, err := imports(file)
		for _, other := range imported {
			if other, below := strings.CutPrefix(other, dir+"/"); below {
				other, _, _ = strings.Cut(other, "/")
				if level[other] < level[of] {
					found = append(found, of+" imports "+other+", which stands above it")
				}
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the packages below %s: %w", dir, err)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
