// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versions keeps the libraries that several Go modules use at one version each. Go's build cache shares a compiled
// package between modules only if all of its dependencies are the same, so a library that differs is compiled twice, with
// everything above it.
package versions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// maxRounds bounds Align. A raised library can require newer versions of others; three rounds are usual.
const maxRounds = 10

// Drift is a library that modules require at different versions.
type Drift struct {
	// Library is the module path of the library.
	Library string
	// Versions maps the directory of each module that requires the library to the version there.
	Versions map[string]string
}

// String names the library, and each version with the modules that require it, the newest first.
func (d Drift) String() string {
	byVersion := map[string][]string{}
	for _, dir := range slices.Sorted(maps.Keys(d.Versions)) {
		byVersion[d.Versions[dir]] = append(byVersion[d.Versions[dir]], dir)
	}
	var parts []string
	for _, version := range slices.SortedFunc(maps.Keys(byVersion), func(a, b string) int { return compare(b, a) }) {
		parts = append(parts, version+" in "+strings.Join(byVersion[version], ", "))
	}
	return d.Library + ": " + strings.Join(parts, "; ")
}

func (d Drift) newest() string {
	return slices.MaxFunc(slices.Collect(maps.Values(d.Versions)), compare)
}

// Check returns the libraries that the go.mod files of dirs, below root, require at different versions, in order of their
// paths. Each go.mod file is tidy, so that it lists what the packages of the module are compiled from.
func Check(ctx context.Context, root string, dirs []string) ([]Drift, error) {
	required := map[string]map[string]string{}
	for _, dir := range dirs {
		requirements, err := requirements(ctx, filepath.Join(root, dir))
		if err != nil {
			return nil, fmt.Errorf("reading %s/go.mod: %w", dir, err)
		}
		for library, version := range requirements {
			if required[library] == nil {
				required[library] = map[string]string{}
			}
			required[library][dir] = version
		}
	}
	var drifts []Drift
	for _, library := range slices.Sorted(maps.Keys(required)) {
		if one := slices.Compact(slices.Sorted(maps.Values(required[library]))); len(one) > 1 {
			drifts = append(drifts, Drift{Library: library, Versions: required[library]})
		}
	}
	return drifts, nil
}

// Align raises every library that differs to its newest version and tidies the modules, until nothing differs.
func Align(ctx context.Context, root string, dirs []string) error {
	for _, dir := range dirs {
		if err := tidy(ctx, root, dir); err != nil {
			return err
		}
	}
	for range maxRounds {
		drifts, err := Check(ctx, root, dirs)
		if err != nil || len(drifts) == 0 {
			return err
		}
		for dir, raises := range raises(drifts) {
			if err := run(ctx, filepath.Join(root, dir), append([]string{"mod", "edit"}, raises...)...); err != nil {
				return fmt.Errorf("raising the requirements of %s: %w", dir, err)
			}
			if err := tidy(ctx, root, dir); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("the versions still differ after %d rounds", maxRounds)
}

// raises returns the arguments of "go mod edit" for each module that is behind.
func raises(drifts []Drift) map[string][]string {
	edits := map[string][]string{}
	for _, drift := range drifts {
		for dir, version := range drift.Versions {
			if newest := drift.newest(); version != newest {
				edits[dir] = append(edits[dir], "-require="+drift.Library+"@"+newest)
			}
		}
	}
	return edits
}

// requirements maps the path of each required module to its version. A replacement by another version counts as that
// version, and a replacement by a directory as no requirement.
func requirements(ctx context.Context, dir string) (map[string]string, error) {
	text, err := output(ctx, dir, "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var module struct {
		Require []struct{ Path, Version string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal(text, &module); err != nil {
		return nil, fmt.Errorf("parsing the output of go mod edit -json: %w", err)
	}
	required := map[string]string{}
	for _, r := range module.Require {
		required[r.Path] = r.Version
	}
	for _, r := range module.Replace {
		version, ok := required[r.Old.Path]
		switch {
		case !ok || (r.Old.Version != "" && r.Old.Version != version):
		case r.New.Version == "":
			delete(required, r.Old.Path)
		case r.New.Path == r.Old.Path && r.New.Version != version:
			// The build cache knows a package by the required version, and its content by the replacement.
			required[r.Old.Path] = version + " => " + r.New.Version
		}
	}
	return required, nil
}

func tidy(ctx context.Context, root, dir string) error {
	if err := run(ctx, filepath.Join(root, dir), "mod", "tidy"); err != nil {
		return fmt.Errorf("tidying %s: %w", dir, err)
	}
	return nil
}

func run(ctx context.Context, dir string, args ...string) error {
	_, err := output(ctx, dir, args...)
	return err
}

func output(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, cmp.Or(lastLine(stderr.String(), err), err)
	}
	return text, nil
}

func lastLine(text string, err error) error {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return nil
}
