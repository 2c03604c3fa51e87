// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

const (
	// nextField names the page that a sign-in leads to, in addresses and forms.
	nextField = "next"
	// maxNext bounds its length: the flow of an issuer keeps it in a cookie.
	maxNext = 2048
	// homeURL is where a sign-in leads without it.
	homeURL = Base + "/"
)

// localURL is the address of a page of the console that a sign-in may lead to, Home for anything else: what is not below Base, or what a browser could read as another
// site.
func localURL(next string) string {
	if len(next) > maxNext || !strings.HasPrefix(next, homeURL) || strings.Contains(next, `\`) {
		return homeURL
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || strings.Contains(u.Path, `\`) {
		return homeURL
	}
	if clean := path.Clean(u.Path); u.Path != clean && u.Path != clean+"/" || !strings.HasPrefix(u.Path, homeURL) || strings.HasPrefix(u.Path, signInURL) {
		return homeURL
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

// signInFor is the address of the page for signing in that leads to another page afterwards.
func signInFor(next string) string {
	if next = localURL(next); next == homeURL {
		return signInURL
	}
	return signInURL + "?" + url.Values{nextField: {next}}.Encode()
}

// crossSite is true for a link that a person followed from another site. Browsers send no cookie with SameSite=Strict along with it.
func crossSite(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// follow answers with a page that leads to another one. The navigation is the console's own, so that the browser sends the session along.
func (c *console) follow(w http.ResponseWriter, title, next string) {
	c.pages.render(w, http.StatusOK, "follow", frame{Title: title, Body: followPage{Title: title, URL: next}})
}

// followPage is a page that leads to the address URL.
type followPage struct{ Title, URL string }
