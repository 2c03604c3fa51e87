// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package externalipam

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

const token = "c2VjcmV0LXRva2Vu"

// TestNoErrorAndNoLogHasTheToken asks inventories that fail in every way, some of which send the token back.
func TestNoErrorAndNoLogHasTheToken(t *testing.T) {
	echo := func(r *http.Request) string { return r.Header.Get("Authorization") + " " + r.URL.String() }
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		token  string
		says   string
	}{
		"a refusal": {answer: func(w http.ResponseWriter, r *http.Request) { http.Error(w, echo(r), http.StatusUnauthorized) }, says: "unexpected status 401"},
		"no JSON":   {answer: func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(echo(r))) }, says: "reading the answer"},
		"a redirect with a token": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://u:"+token+"@127.0.0.1:1/?t="+token, http.StatusFound)
		}, says: "asking the inventory"},
		"a redirect for ever": {answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/"+token, http.StatusFound) }, says: "asking the inventory"},
		"a cut connection":    {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, says: "asking the inventory"},
		"a token that no header can have": {
			answer: func(http.ResponseWriter, *http.Request) {}, token: token + "\nX-Other: " + token, says: "asking the inventory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			file := filepath.Join(t.TempDir(), "token")
			content := test.token
			if content == "" {
				content = token
			}
			require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
			failed := map[string]int{}
			c := NewClient(server.URL, file, func(operation string, err error) {
				if err != nil {
					failed[operation]++
				}
			})
			address := &ipamv1.IPAddress{}
			_, taken := c.Taken(t.Context(), types.NamespacedName{Name: "p"})
			for operation, err := range map[string]error{operationTaken: taken, operationGive: c.Give(t.Context(), address), operationFree: c.Return(t.Context(), types.NamespacedName{})} {
				if err == nil {
					assert.Equal(t, "no JSON", name, "an answer to what was told may say anything")
					continue
				}
				assert.Equal(t, 1, failed[operation])
				assert.NotContains(t, err.Error(), token)
				assert.NotContains(t, err.Error(), server.URL)
			}
			require.ErrorContains(t, taken, test.says)

			var log strings.Builder
			logger := funcr.New(func(prefix, args string) { log.WriteString(prefix + args) }, funcr.Options{})
			f := New(Deps{Client: c, Index: space.New(), Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
			f.follow(ctrl.LoggerInto(t.Context(), logger), types.NamespacedName{Name: "p"})
			assert.NotEmpty(t, log.String())
			assert.NotContains(t, log.String(), token)
		})
	}
}

// A client follows a redirect of most statuses with GET, whatever it sent, as from http to https.
func TestNotificationsAreNotLostInARedirect(t *testing.T) {
	for status, kept := range map[int]bool{http.StatusMovedPermanently: false, http.StatusFound: false, http.StatusTemporaryRedirect: true, http.StatusPermanentRedirect: true} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			arrived := map[string]int{}
			mux := http.NewServeMux()
			mux.HandleFunc("/old/", func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, strings.Replace(r.URL.String(), "/old/", "/new/", 1), status)
			})
			mux.HandleFunc("/new/", func(w http.ResponseWriter, r *http.Request) {
				arrived[r.Method]++
				_, _ = w.Write([]byte(`{"addresses": []}`))
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			c := NewClient(server.URL+"/old", "", func(string, error) {})
			_, err := c.Taken(t.Context(), types.NamespacedName{Name: "p"})
			require.NoError(t, err)
			given, returned := c.Give(t.Context(), &ipamv1.IPAddress{}), c.Return(t.Context(), types.NamespacedName{Namespace: "n", Name: "a"})
			if kept {
				require.NoError(t, given)
				require.NoError(t, returned)
				assert.Equal(t, map[string]int{http.MethodGet: 1, http.MethodPut: 1, http.MethodDelete: 1}, arrived)
				return
			}
			require.ErrorContains(t, given, "--inventory-url")
			require.ErrorContains(t, returned, "--inventory-url")
			assert.Equal(t, map[string]int{http.MethodGet: 1}, arrived)
		})
	}
}

func TestInvalidAddressesAreRefused(t *testing.T) {
	for _, text := range []string{"0.0.0.0/0", "::/0", "10.0.0.300", "10.0.0.0/33", ""} {
		_, err := parse(text)
		require.Error(t, err, text)
	}
	got, err := parse("10.0.0.65/28")
	require.NoError(t, err)
	assert.Equal(t, netip.MustParsePrefix("10.0.0.64/28"), got)
}

// TestChangesAreReportedOnce learns the same answer twice.
func TestChangesAreReportedOnce(t *testing.T) {
	f := New(Deps{Index: space.New(), Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	for i, test := range []struct {
		taken   []netip.Prefix
		changed bool
	}{
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, true},
		{[]netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, false},
		{nil, true},
	} {
		_, changed := f.learn(types.NamespacedName{Name: "p"}, uint64(i), test.taken)
		assert.Equal(t, test.changed, changed)
	}
}
