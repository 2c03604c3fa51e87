// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console"
)

// TestTheNewestOfMoreThanAThousandClustersIsThere, in the list of those that machines can be bound to. Home counts all.
func TestTheNewestOfMoreThanAThousandClustersIsThere(t *testing.T) {
	const clusters = 1001
	s := newSite(t)
	admin := s.token("root", "admins")
	var older errgroup.Group
	older.SetLimit(8)
	for i := range clusters - 1 {
		older.Go(func() error {
			s.makeCluster(admin, fmt.Sprintf("older-%d", i))
			return nil
		})
	}
	require.NoError(t, older.Wait())
	s.makeCluster(admin, "newest")
	var env api.InfraEnv
	require.NoError(t, json.Unmarshal(s.call("Authorization", "Bearer "+admin, "POST", "/infra-envs", map[string]any{"name": "rack", "pull_secret": `{"auths":{}}`}), &env))
	s.report(s.imageToken(admin, env.ID.String()), env.ID.String(), env.ID.String(), map[string]any{"hostname": "node-1"})

	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	p := &person{&http.Client{Jar: jar}, t, "http://" + s.address + console.Base, ""}
	response, err := p.PostForm(p.base+"/sign-in", url.Values{"token": {admin}})
	status, home := p.read(response, err)
	require.Equal(t, http.StatusOK, status, home)
	assert.Contains(t, home, fmt.Sprintf(`<span class="value">%d</span> <span>Clusters</span>`, clusters))
	for _, path := range []string{"/machines", "/machines/" + env.ID.String() + "/" + env.ID.String()} {
		_, page := p.read(p.Get(p.base + path))
		assert.Contains(t, page, ">newest</option>", path)
		assert.Contains(t, page, ">older-0</option>", path)
	}
}

// TestClaimsAreShownToThoseWhoMayNotListPools, and pools to those who may not list claims. What the person may not list is said once.
func TestClaimsAreShownToThoseWhoMayNotListPools(t *testing.T) {
	const pool, claim = `{"metadata":{"name":"small","namespace":"team"},"spec":{"size":1}}`, `{"metadata":{"name":"mine","namespace":"team"},"spec":{"clusterPoolName":"small"}}`
	for refused, test := range map[string]struct {
		code        int
		pool, claim bool
		sentence    string
	}{
		"clusterpools":  {code: 403, claim: true, sentence: "you may not list clusterpools"},
		"clusterclaims": {code: 403, pool: true, sentence: "you may not list clusterclaims"},
		"cluster":       {code: 401, sentence: "The Kubernetes API does not accept your token."},
	} {
		t.Run(refused, func(t *testing.T) {
			kubernetes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case strings.Contains(r.URL.Path, "/"+refused):
					w.WriteHeader(test.code)
					reason := map[int]string{401: "Unauthorized", 403: "Forbidden"}[test.code]
					_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"you may not list %s"}`, reason, test.code, refused)
				case strings.HasSuffix(r.URL.Path, "/clusterpools"):
					_, _ = io.WriteString(w, `{"kind":"ClusterPoolList","apiVersion":"hive.openshift.io/v1","items":[`+pool+`]}`)
				case strings.HasSuffix(r.URL.Path, "/clusterclaims"):
					_, _ = io.WriteString(w, `{"kind":"ClusterClaimList","apiVersion":"hive.openshift.io/v1","items":[`+claim+`]}`)
				default:
					_, _ = io.WriteString(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`)
				}
			}))
			t.Cleanup(kubernetes.Close)
			p := signIn(t, newUnapproved(0), &rest.Config{Host: kubernetes.URL})
			status, page := p.read(p.Get(p.base + "/pools?namespace=team"))
			require.Equal(t, http.StatusOK, status, page)
			assert.Equal(t, test.pool, strings.Contains(page, `<th scope="row">small</th>`), page)
			assert.Equal(t, test.claim, strings.Contains(page, `>mine</a>`), page)
			assert.Equal(t, 1, strings.Count(page, test.sentence), page)
		})
	}
}
