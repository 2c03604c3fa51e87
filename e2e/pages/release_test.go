// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pages_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/e2e/chart"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment/environmenttest"
)

var (
	applies = regexp.MustCompile("`(kubectl apply --server-side -f dist/install/pool-operator.yaml)`")
	moves   = regexp.MustCompile("`(sed '[^']+' install/pool-operator.yaml \\| kubectl apply --server-side -f -)`")
)

// A cluster without any kind of ours takes the manifests of a release by the commands of docs/release.md: as they are, and with the images of another registry.
func TestTheManifestsOfAReleaseInstall(t *testing.T) {
	path, err := checkout.Path("docs", "release.md")
	require.NoError(t, err)
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, command := range map[string]*regexp.Regexp{"as they are": applies, "with another registry": moves} {
		t.Run(name, func(t *testing.T) {
			found := command.FindSubmatch(page)
			require.NotNil(t, found, "the page has no such command")
			plane, _ := environmenttest.ControlPlane(t)
			u := newUser(t, plane.Kubeconfig())
			for _, dir := range []string{"install", filepath.Join("dist", "install")} {
				require.NoError(t, os.MkdirAll(filepath.Join(u.dir, dir), 0o700))
			}
			for _, operator := range chart.Operators() {
				text, err := chart.Manifest(operator, "v0.2.0")
				require.NoError(t, err)
				for _, dir := range []string{"install", filepath.Join("dist", "install")} {
					require.NoError(t, os.WriteFile(filepath.Join(u.dir, dir, operator+".yaml"), text, 0o600))
				}
				u.run(strings.ReplaceAll(string(found[1]), "pool-operator", operator))
			}
			images := u.sh(`kubectl get deployments -A -o jsonpath='{range .items[*]}{.spec.template.spec.containers[*].image} {.spec.template.spec.containers[*].env[*].value}{"\n"}{end}'`, "")
			assert.Equal(t, name == "as they are", strings.Contains(images, "ghcr.io/muster-io/"), images)
			assert.Equal(t, name != "as they are", strings.Contains(images, "registry.example.com/muster/control-plane:"), images)
			for _, operator := range chart.Operators() {
				assert.Contains(t, images, "/"+operator+":v0.2.0")
			}
		})
	}
}
