// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/inprocess"
	"github.com/muster-io/muster/agent-service/internal/console/location"
	"github.com/muster-io/muster/agent-service/internal/console/oidc"
	"github.com/muster-io/muster/agent-service/internal/console/session"
	"github.com/muster-io/muster/agent-service/internal/token"
)

const (
	signInURL = location.SignIn
	// flowCookie begins the names of the cookies of flows, and is the label that they are sealed with.
	flowCookie = "muster-console-flow"
	// flowBytes is how large the cookies of flows are together, but for the newest one: nginx takes 8 kB of cookies, by default.
	flowBytes = 3000
	flowPath  = signInURL + "/oidc"
	// Callback is where an issuer sends people back to.
	Callback = flowPath + "/callback"
)

// signInPage asks for a token; where the API asks for none, it begins a session at once.
func (c *console) signInPage(w http.ResponseWriter, r *http.Request) {
	next := location.Local(r.URL.Query().Get(location.NextField))
	if c.accepted(r, "") == nil && c.vault.Begin(w, "", c.HTTPS) == nil {
		http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // location.Local lets addresses of the console through only
		return
	}
	c.askToken(w, http.StatusOK, "", next)
}

// signInBody is why the last try to sign in failed, the name of the issuer where people can sign in, and the page that signing in leads to. The first two are empty for
// none.
type signInBody struct{ Problem, Issuer, Next string }

// Flow is the address where a sign-in at the issuer begins.
func (b signInBody) Flow() string {
	return flowPath + "?" + url.Values{location.NextField: {b.Next}}.Encode()
}

func (c *console) askToken(w http.ResponseWriter, status int, problem, next string) {
	body := signInBody{Problem: problem, Next: next}
	if c.SignIn != nil {
		body.Issuer = c.SignIn.Host()
	}
	c.pages.render(w, status, "signin", frame{Title: t("signin.title"), Body: body})
}

// signIn begins a session with a token that a person pasted.
func (c *console) signIn(w http.ResponseWriter, r *http.Request) {
	next := location.Local(r.PostFormValue(location.NextField))
	if c.HTTPS && location.Insecure(r.Header.Get("Origin")) { // the page for signing in would come again, without a word
		c.askToken(w, http.StatusBadRequest, t("signin.insecure", c.URL+Base), next)
		return
	}
	if err := c.beginSession(w, r, strings.TrimSpace(r.PostFormValue("token"))); err != nil {
		c.signInFailed(w, err, next)
		return
	}
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // location.Local lets addresses of the console through only
}

// beginSession begins a session with a token that the API accepts.
func (c *console) beginSession(w http.ResponseWriter, r *http.Request, token string) error {
	if len(token) > session.MaxToken {
		return session.ErrTooLong
	}
	if err := c.accepted(r, token); err != nil {
		return err
	}
	return c.vault.Begin(w, token, c.HTTPS)
}

// signInProblem is the status and the sentence for a sign-in that failed.
func signInProblem(err error) (int, string) {
	refused, answered := asRefusal(err)
	failed, issued := errors.AsType[*oidc.Problem](err)
	switch {
	case errors.Is(err, token.ErrUnverified), answered && refused.Reason == token.ErrUnverified.Error():
		return http.StatusUnauthorized, t("signin.unverified")
	case issued:
		return failed.Status, t("signin.issuer."+failed.Reason, failed.About...)
	case errors.Is(err, session.ErrTooLong):
		return http.StatusBadRequest, t("signin.long")
	case answered && refused.status == http.StatusUnauthorized:
		return refused.status, t("signin.refused")
	case answered:
		return refused.status, t("signin.answer", refused.Reason)
	default:
		return http.StatusInternalServerError, t("error.internal")
	}
}

// accepted asks the API whether a token is a person's.
func (c *console) accepted(r *http.Request, token string) error {
	by, err := inprocess.NewClient(c.API, token, r)
	if err != nil {
		return err
	}
	_, err = call[[]api.InfraEnv](by.ListInfraEnvs(r.Context(), &api.ListInfraEnvsParams{Limit: new(1)}))
	return err
}

func signOut(v *visit) error {
	v.vault.Forget(v.w, v.r, v.HTTPS)
	return v.redirect("/sign-in")
}

// flow is a sign-in at the issuer, and the page that it leads to.
type flow struct {
	oidc.Flow
	Next string
}

// startFlow sends a person to the issuer.
func (c *console) startFlow(w http.ResponseWriter, r *http.Request) {
	f := flow{Next: location.Local(r.URL.Query().Get(location.NextField))}
	var issuer string
	var err error
	if f.Flow, issuer, err = c.SignIn.Begin(r.Context(), c.Now()); err != nil {
		c.signInFailed(w, err, f.Next)
		return
	}
	sealed, err := c.vault.Seal(flowCookie, f)
	if err != nil {
		c.fail(w, r, nil, err)
		return
	}
	c.boundFlows(w, r)
	c.setFlow(w, flowName(f.State), sealed, int(oidc.FlowTime.Seconds()))
	http.Redirect(w, r, issuer, http.StatusSeeOther)
}

// flowName is the name of the cookie of a flow. Each flow has its own, so that a person may sign in on several pages at once.
func flowName(state string) string { return flowCookie + "-" + oidc.FlowName(state) }

// boundFlows forgets the oldest flows of a browser that were begun and not finished, beyond flowBytes.
func (c *console) boundFlows(w http.ResponseWriter, r *http.Request) {
	size := 0
	for _, cookie := range slices.Backward(r.Cookies()) { // browsers send the oldest first
		if !strings.HasPrefix(cookie.Name, flowCookie) {
			continue
		}
		if size += len(cookie.Value); size > flowBytes {
			c.setFlow(w, cookie.Name, "", -1)
		}
	}
}

// setFlow keeps a flow in the browser, which sends it along when the issuer, another site, sends the person back.
func (c *console) setFlow(w http.ResponseWriter, name, sealed string, age int) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: sealed, Path: flowPath, MaxAge: age, HttpOnly: true, Secure: c.HTTPS, SameSite: http.SameSiteLaxMode}) //nolint:gosec // Secure where browsers come by TLS
}

// finishFlow begins the session of a person whom the issuer sends back. A flow is used once, whatever its outcome.
func (c *console) finishFlow(w http.ResponseWriter, r *http.Request) {
	name := flowName(r.URL.Query().Get("state"))
	c.setFlow(w, name, "", -1)
	var f flow // without a cookie, one that has expired
	if cookie, err := r.Cookie(name); err == nil {
		_ = c.vault.Unseal(flowCookie, cookie.Value, &f)
	}
	next := location.Local(f.Next)
	idToken, err := c.SignIn.Finish(r.Context(), f.Flow, r.URL.Query(), c.Now())
	if err == nil {
		err = c.beginSession(w, r, idToken)
	}
	if err != nil {
		c.signInFailed(w, err, next)
		return
	}
	// The browser leaves out cookies with SameSite=Strict while it follows redirects of another site: the page leads on.
	c.follow(w, t("signin.done"), next)
}

// signInFailed says on the page for signing in why that failed; a token can be pasted there.
func (c *console) signInFailed(w http.ResponseWriter, err error, next string) {
	status, text := signInProblem(err)
	c.Log.Info("refused a sign-in", zap.Int("status", status), zap.NamedError("cause", err))
	c.askToken(w, status, text, next)
}
