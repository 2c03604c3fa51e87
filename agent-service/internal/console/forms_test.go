// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTheFormOfClustersKeepsTheVersion that a person chose, and begins with the one that the service says is the default.
func TestTheFormOfClustersKeepsTheVersion(t *testing.T) {
	p := signIn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/openshift-versions"):
			_, _ = io.WriteString(w, `{"1.30":{"display_name":"1.30"},"1.31":{"display_name":"1.31"},"1.32":{"display_name":"1.32","default":true}}`)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"reason":"machine_networks.0.cidr: no network"}`)
		default:
			newSlowAPI(0).ServeHTTP(w, r)
		}
	}), nil)
	_, page := p.read(p.Get(p.base + "/clusters/new"))
	assert.Contains(t, page, "<option selected>1.32</option>")
	assert.Equal(t, 3, strings.Count(page, "1.3"), page)
	_, page = p.read(p.PostForm(p.base+"/clusters", url.Values{"csrf": {p.csrf}, "name": {"blue"}, "version": {"1.31"}, "machine_network": {"10.0.0.0/99"}}))
	assert.Contains(t, page, "machine_networks.0.cidr: no network")
	assert.Contains(t, page, "<option selected>1.31</option>")
	assert.NotContains(t, page, "<option selected>1.32</option>")
}
