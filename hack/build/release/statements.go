// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Build says how a release was made.
type Build struct {
	// Version is that of the release, such as v0.2.0.
	Version string
	// Repository is the address of the sources, and Commit what was built.
	Repository, Commit string
	// Builder names what ran the build.
	Builder string
	// Time is that of the commit: the same sources give the same documents.
	Time time.Time
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func spdxID(kind, name string) string {
	return "SPDXRef-" + kind + "-" + unfit.ReplaceAllString(name, "-")
}

// SBOM is the list of what an image or a program for a platform holds, as a document of SPDX 2.3.
func (b Build) SBOM(image, platform string, contents Contents) ([]byte, error) {
	root := spdxID("Image", image)
	packages := []map[string]any{{
		"SPDXID": root, "name": image, "versionInfo": b.Version, "downloadLocation": b.Repository, "filesAnalyzed": false,
		"licenseConcluded": "NOASSERTION", "licenseDeclared": "Apache-2.0", "copyrightText": "Copyright The Muster Authors.",
	}}
	relations := []map[string]string{{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": root}}
	for _, p := range contents.Packages {
		id := spdxID("Package", p.Name+"-"+p.Version)
		packages = append(packages, map[string]any{
			"SPDXID": id, "name": p.Name, "versionInfo": p.Version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
			"licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
			"externalRefs": []map[string]string{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": p.URL}},
		})
		relations = append(relations, map[string]string{"spdxElementId": root, "relationshipType": "CONTAINS", "relatedSpdxElement": id})
	}
	files := make([]map[string]any, 0, len(contents.Files))
	for _, f := range contents.Files {
		id := spdxID("File", strings.Trim(f.Name, "/"))
		files = append(files, map[string]any{
			"SPDXID": id, "fileName": "." + f.Name, "checksums": []map[string]string{{"algorithm": "SHA256", "checksumValue": f.SHA256}},
			"licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
		})
		relations = append(relations, map[string]string{"spdxElementId": root, "relationshipType": "CONTAINS", "relatedSpdxElement": id})
	}
	name := image + "-" + b.Version + "-" + strings.ReplaceAll(platform, "/", "-")
	seed := sha256.Sum256([]byte(name + b.Commit))
	return json.MarshalIndent(map[string]any{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
		"documentNamespace": b.Repository + "/spdx/" + name + "-" + hex.EncodeToString(seed[:8]),
		"creationInfo":      map[string]any{"created": b.Time.UTC().Format(time.RFC3339), "creators": []string{"Organization: The Muster Authors", "Tool: muster-release"}},
		"packages":          packages, "files": files, "relationships": relations,
	}, "", " ")
}

// Subject is what a statement is about: an image, or a file.
type Subject struct {
	Name   string
	Digest v1.Hash
}

// Provenance says from what an image or the files of a program were built, as an in-toto statement with a SLSA 1.0 predicate. CI signs it.
func (b Build) Provenance(of []Subject, packages []Package) ([]byte, error) {
	subjects := make([]map[string]any, 0, len(of))
	for _, s := range of {
		subjects = append(subjects, map[string]any{"name": s.Name, "digest": map[string]string{s.Digest.Algorithm: s.Digest.Hex}})
	}
	dependencies := []map[string]any{{"uri": "git+" + b.Repository + "@" + b.Version, "digest": map[string]string{"gitCommit": b.Commit}}}
	for _, p := range packages {
		d := map[string]any{"uri": p.URL}
		if p.Sum != "" {
			d["annotations"] = map[string]string{"goSum": p.Sum}
		}
		dependencies = append(dependencies, d)
	}
	return json.MarshalIndent(map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType": b.Repository + "/blob/main/docs/release.md", "externalParameters": map[string]string{"version": b.Version},
				"resolvedDependencies": dependencies,
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": b.Builder}},
		},
	}, "", " ")
}

// Notes returns the section of a changelog for a version, without its heading: that of the version, else what is unreleased.
func Notes(changelog, version string) (string, error) {
	for _, title := range []string{"[" + strings.TrimPrefix(version, "v") + "]", version, strings.TrimPrefix(version, "v"), "Unreleased"} {
		_, after, found := strings.Cut(changelog, "\n## "+title)
		if !found {
			continue
		}
		_, body, _ := strings.Cut(after, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		return strings.TrimSpace(body) + "\n", nil
	}
	return "", fmt.Errorf("the changelog has no section for %s and none of what is unreleased", version)
}

// Checksums writes SHA256SUMS in dir, over all files below it, in the form that sha256sum --check reads.
func Checksums(dir string) error {
	var lines []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "SHA256SUMS" {
			return err
		}
		sum, err := checksum(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		lines = append(lines, sum+"  "+filepath.ToSlash(name)+"\n")
		return err
	})
	if err != nil {
		return fmt.Errorf("summing %s: %w", dir, err)
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644) //nolint:gosec // everyone may read it
}
