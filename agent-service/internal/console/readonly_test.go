// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
)

// TestAViewerSeesEverythingAndNoButtons: the API says that the account is read-only.
func TestAViewerSeesEverythingAndNoButtons(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	env := s.makeInfraEnv(admin, "rack-v")
	host := uuid.NewString()
	s.report(s.imageToken(admin, env), env, host, map[string]any{"hostname": "seen-1", "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
	machine := "/machines/" + env + "/" + host
	buttons := map[string]string{"/machines": "Bind…", "/infra-envs": "New InfraEnv", "/infra-envs/" + env: "Download the ISO", machine: "Set role…", "/clusters": "New cluster"}
	const controls = `Array.from(document.querySelectorAll("main button, main .button, main input:not([type=hidden])")).filter(e => !e.closest("form[role=search]")).map(e => e.outerHTML)`

	root := s.open(chromium, t, admin)
	root.visit("/clusters/new")
	root.makeCluster("seen")
	viewer := s.open(chromium, t, s.token("vera", "admins", "viewers"))
	viewer.sees("header", "vera (read only)")
	for path, button := range buttons {
		root.visit(path)
		root.sees("main", button)
		viewer.visit(path)
		viewer.sees("main", map[bool]string{true: "seen", false: "rack-v"}[path == "/clusters" || path == "/machines" || path == machine])
		assert.Empty(t, ask[[]string](viewer, controls), path)
	}
	viewer.looksFine("machine-viewer")

	// What the page leaves out, the API refuses.
	for _, path := range []string{"/infra-envs/" + env + "/image", "/infra-envs/" + env} {
		viewer.visit(path)
		assert.NotContains(t, ask[string](viewer, `document.documentElement.outerHTML`), "api_key", path)
	}
	viewer.visit("/infra-envs/" + env + "/image")
	viewer.sees(".notice.bad", "this account is read-only")
}
