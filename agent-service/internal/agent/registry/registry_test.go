// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var digest = "sha256:" + strings.Repeat("a", 64)

// serve has one image in each form, for those who have a token and name the form, as CNCF Distribution does. me:secret gets tokens.
func serve(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("GET /token", func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"token":"t"}`))
	})
	mux.HandleFunc("HEAD /v2/images/{form}/manifests/{reference}", func(w http.ResponseWriter, r *http.Request) {
		form := map[string]string{
			"index": "application/vnd.oci.image.index.v1+json", "manifest": "application/vnd.oci.image.manifest.v1+json",
			"list": "application/vnd.docker.distribution.manifest.list.v2+json", "image": "application/vnd.docker.distribution.manifest.v2+json",
		}[r.PathValue("form")]
		switch {
		case r.Header.Get("Authorization") != "Bearer t":
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+server.URL+`/token",service="registry",scope="repository:images:pull"`)
			w.WriteHeader(http.StatusUnauthorized)
		case !slices.Contains([]string{"latest", "v1", digest}, r.PathValue("reference")), !slices.Contains(r.Header.Values("Accept"), form):
			w.WriteHeader(http.StatusNotFound)
		}
	})
	return server
}

func TestImagesOfEveryFormAreThere(t *testing.T) {
	server := serve(t)
	host := strings.TrimPrefix(server.URL, "https://")
	c := Client{HTTP: server.Client(), PullSecret: `{"auths":{"` + host + `":{"auth":"bWU6c2VjcmV0"}}}`}
	for image, there := range map[string]bool{
		"index:v1": true, "manifest": true, "list:v1": true, "image@" + digest: true, "image:v2@" + digest: true,
		"index:v2": false, "other:v1": false, "image@sha256:b": false, "image:v1@sha256:b": false,
	} {
		assert.Equal(t, there, c.Has(t.Context(), host+"/images/"+image) == nil, image)
	}
	assert.Error(t, Client{HTTP: server.Client()}.Has(t.Context(), host+"/images/index:v1"), "without the pull secret")
}

// asked answers each request with success, and keeps it.
type asked []*http.Request

// RoundTrip implements http.RoundTripper.
func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	*a = append(*a, r)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

func TestImagesOfDockerHubAreAtItsRegistry(t *testing.T) {
	for image, want := range map[string]string{
		"docker.io/library/busybox:v1": "https://registry-1.docker.io/v2/library/busybox/manifests/v1",
		"docker.io/busybox":            "https://registry-1.docker.io/v2/library/busybox/manifests/latest",
		"docker.io/team/app@" + digest: "https://registry-1.docker.io/v2/team/app/manifests/" + digest,
	} {
		for _, key := range []string{"docker.io", "https://index.docker.io/v1/"} {
			var requests asked
			c := Client{HTTP: &http.Client{Transport: &requests}, PullSecret: `{"auths":{"` + key + `":{"auth":"bWU6c2VjcmV0"}}}`}
			require.NoError(t, c.Has(t.Context(), image))
			require.Len(t, requests, 1)
			assert.Equal(t, want, requests[0].URL.String())
			assert.Equal(t, "Basic bWU6c2VjcmV0", requests[0].Header.Get("Authorization"), key)
		}
	}
}
