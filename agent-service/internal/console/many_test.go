// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// TestAClusterOfManyIsFoundByItsName: machines can be bound to each, and no page has all of them.
func TestAClusterOfManyIsFoundByItsName(t *testing.T) {
	t.Parallel()
	const clusters = 1001
	chromium := browserOf(t)
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
	newest := s.makeCluster(admin, "newest")
	env := s.makeInfraEnv(admin, "rack")
	s.report(s.imageToken(admin, env), env, env, map[string]any{"hostname": "node-1"})

	b := s.open(chromium, t, admin)
	b.sees(".number", fmt.Sprint(clusters))
	for _, path := range []string{"/machines", "/machines/" + env + "/" + env} {
		b.visit(path)
		b.sees("#live", "node-1")
		assert.Less(t, ask[float64](b, `document.documentElement.outerHTML.length`), 40e3, path)
		assert.Equal(t, 100, ask[int](b, `document.querySelectorAll("datalist option").length`))
		b.run(chromedp.SendKeys(chromedp.CSS("#cluster"), "EWES"))
		b.until(`Array.from(document.querySelectorAll("datalist option")).map(o => o.value).join() === "newest"`)
	}
	b.looksFine("machine-many-clusters")
	b.visit("/machines")
	b.choose("node-1")
	b.sees("#selected", "1 selected")
	b.set("#cluster", "newest")
	s.report(s.imageToken(admin, env), env, uuid.NewString(), map[string]any{"hostname": "node-2"})
	b.sees("#live", "node-2")
	assert.Equal(t, "newest", ask[string](b, `document.querySelector("#cluster").value`), "what was written stays")
	b.until(`Array.from(document.querySelectorAll("datalist option")).map(o => o.value).join() === "newest"`)
	b.press("Bind…")
	b.sees("h1", "Bind 1 machine to newest")
	ask[any](b, `document.querySelector("input[name=host]").checked = true, null`)
	b.press("Bind selected machines")
	b.sees(".notice", "1 of 1 machines were changed.")
	b.visit("/machines?cluster=" + newest)
	b.sees(".narrowed", "Cluster newest")
	b.sees("tbody", "newest")

	// A name that no cluster has, or several have, is refused with a sentence. Those are told apart by their ids.
	twin := s.makeCluster(admin, "newest")
	b.visit("/machines")
	b.sees("#live", "node-1")
	b.run(chromedp.SendKeys(chromedp.CSS("#cluster"), "newest"))
	b.until(`Array.from(document.querySelectorAll("datalist option")).map(o => o.value).join() === ` + quoted(newest+","+twin))
	for written, sentence := range map[string]string{"newest": "Several clusters are called newest", "older": "There is no cluster older", " ": "No cluster is selected", twin: "Bind 1 machine to newest"} {
		b.visit("/machines")
		b.choose("node-1")
		b.set("#cluster", written)
		b.press("Bind…")
		b.sees("main", sentence)
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
