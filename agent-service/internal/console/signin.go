// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"errors"
	"net/http"
	"strings"

	"github.com/muster-io/muster/agent-service/api"
)

// signInPage asks for a token; where the API asks for none, it begins a session at once.
func (c *console) signInPage(w http.ResponseWriter, r *http.Request) {
	if c.accepted(r, "") == nil && c.vault.begin(w, "", c.HTTPS) == nil {
		http.Redirect(w, r, Base+"/", http.StatusSeeOther)
		return
	}
	c.askToken(w, http.StatusOK, "")
}

func (c *console) askToken(w http.ResponseWriter, status int, problem string) {
	c.pages.render(w, status, "signin", frame{Title: t("signin.title"), Body: problem})
}

// signIn begins a session with a token that the API accepts.
func (c *console) signIn(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimSpace(r.PostFormValue("token"))
	if len(token) > maxToken {
		c.askToken(w, http.StatusBadRequest, t("signin.long"))
		return
	}
	var refused *refusal
	err := c.accepted(r, token)
	if err == nil {
		err = c.vault.begin(w, token, c.HTTPS)
	}
	switch {
	case errors.Is(err, errTooLong):
		c.askToken(w, http.StatusBadRequest, t("signin.long"))
	case errors.As(err, &refused) && refused.status == http.StatusUnauthorized:
		c.askToken(w, http.StatusUnauthorized, t("signin.refused"))
	case err != nil:
		c.fail(w, r, nil, err)
	default:
		http.Redirect(w, r, Base+"/", http.StatusSeeOther)
	}
}

// accepted asks the API whether a token is a person's.
func (c *console) accepted(r *http.Request, token string) error {
	by, err := newClient(c.API, token, r)
	if err != nil {
		return err
	}
	_, err = call[[]api.InfraEnv](by.ListInfraEnvs(r.Context(), &api.ListInfraEnvsParams{Limit: new(1)}))
	return err
}

func signOut(v *visit) error {
	v.vault.forget(v.w, v.r, v.HTTPS)
	return v.redirect("/sign-in")
}
