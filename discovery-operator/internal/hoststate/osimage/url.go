// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package osimage

import (
	"net/url"
	"regexp"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Name is the URL of the image of a host without user, password and query, which can be secret.
func Name(h *metal3v1.BareMetalHost) string {
	if h.Spec.Image == nil {
		return ""
	}
	u, err := url.Parse(h.Spec.Image.URL)
	if err != nil {
		return "the image"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// address is a URL in a text.
var address = regexp.MustCompile(`[a-zA-Z0-9+.-]+://[^\s'"]+`)

// WithoutURLSecrets takes users, passwords and queries from the URLs in a text, also from one that was cut off.
func WithoutURLSecrets(text string) string {
	return address.ReplaceAllStringFunc(text, func(found string) string {
		scheme, rest, _ := strings.Cut(found, "://")
		authority, path, _ := strings.Cut(rest, "/")
		if at := strings.LastIndex(authority, "@"); at >= 0 {
			authority = authority[at+1:]
		} else if strings.HasSuffix(found, "…") { // what follows may have been a password
			return scheme + "://…"
		}
		path, _, _ = strings.Cut(path, "?")
		return scheme + "://" + authority + "/" + path
	})
}
