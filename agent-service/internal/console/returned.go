// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"

	"github.com/muster-io/muster/agent-service/internal/console/location"
	"github.com/muster-io/muster/agent-service/internal/console/session"
)

// returnForm gives a form that people write a lot into back to the browser, with all that was written, and reports whether it is one. Its session, nil for none, is not the one
// that it was made for. Nothing is done.
func (c *console) returnForm(w http.ResponseWriter, r *http.Request, s *session.Session) bool {
	if r.Method != http.MethodPost || r.ParseForm() != nil {
		return false
	}
	form := infraEnvForm{Values: r.PostForm, Problem: t("form.older"), Unread: true}
	if s == nil {
		form.Problem, form.SignIn = t("form.signed_out"), location.SignInFor(r.URL.Path)
	}
	f := frame{Session: s, Section: section(r.URL.Path), Form: true, May: permissions{Change: true}}
	switch r.URL.Path {
	case Base + "/infra-envs":
		f.Title, f.Body = t("infraenvs.new"), form
		c.pages.render(w, http.StatusForbidden, "infraenv-new", f)
	case Base + "/clusters":
		f.Title, f.Body = t("clusters.new"), clusterForm{infraEnvForm: form}
		c.pages.render(w, http.StatusForbidden, "cluster-new", f)
	default:
		return false
	}
	return true
}
