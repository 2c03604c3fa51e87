// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package location knows which addresses are of the console, and what a browser says about the address that it comes from.
package location

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

const (
	// Base is the path below which all screens are.
	Base = "/console"
	// SignIn is the page for signing in.
	SignIn = Base + "/sign-in"
	// NextField names the page that a sign-in leads to, in addresses and forms.
	NextField = "next"
	// maxNext bounds its length: the flow of an issuer keeps it in a cookie.
	maxNext = 2048
	// Home is where a sign-in leads without it.
	Home = Base + "/"
)

// Local is the address of a page of the console that a sign-in may lead to, Home for anything else: what is not below Base, or what a browser could read as another
// site.
func Local(next string) string {
	if len(next) > maxNext || !strings.HasPrefix(next, Home) || strings.Contains(next, `\`) {
		return Home
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || strings.Contains(u.Path, `\`) {
		return Home
	}
	if clean := path.Clean(u.Path); u.Path != clean && u.Path != clean+"/" || !strings.HasPrefix(u.Path, Home) || strings.HasPrefix(u.Path, SignIn) {
		return Home
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

// SignInFor is the address of the page for signing in that leads to another page afterwards.
func SignInFor(next string) string {
	if next = Local(next); next == Home {
		return SignIn
	}
	return SignIn + "?" + url.Values{NextField: {next}}.Encode()
}

// Page is the address of the page that a request is of. The address of a part of a page may be no page.
func Page(r *http.Request) string {
	if at, err := url.Parse(r.Header.Get("HX-Current-URL")); err == nil && Local(at.RequestURI()) == at.RequestURI() {
		return at.RequestURI()
	}
	return r.URL.RequestURI()
}

// CrossSite is true for a link that a person followed from another site. Browsers send no cookie with SameSite=Strict along with it.
func CrossSite(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// Insecure is true for an origin of which browsers keep no cookies that are Secure.
func Insecure(origin string) bool {
	at, err := url.Parse(origin)
	return err == nil && at.Scheme == "http" && !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, at.Hostname())
}

// Protection refuses forms of other sites. Those of the URL at which browsers reach the console are its own: a proxy may pass a host of its own on, with which the origin of
// a form is compared where browsers send no Sec-Fetch-Site, as without TLS. An empty URL is not known.
func Protection(browsers string) (*http.CrossOriginProtection, error) {
	protection := http.NewCrossOriginProtection()
	at, err := url.Parse(browsers)
	if err != nil || at.Host == "" {
		return protection, nil //nolint:nilerr // there is no other address
	}
	if err := protection.AddTrustedOrigin(at.Scheme + "://" + at.Host); err != nil {
		return nil, fmt.Errorf("trusting forms of %s: %w", browsers, err)
	}
	return protection, nil
}
