// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/assets"
	"github.com/muster-io/muster/agent-service/internal/console/inprocess"
	"github.com/muster-io/muster/agent-service/internal/console/session"
	"github.com/muster-io/muster/agent-service/internal/console/status"
	"github.com/muster-io/muster/agent-service/internal/console/words"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// served is a console before an API that answers with what a test says.
func served(t *testing.T, answer http.HandlerFunc) http.Handler {
	t.Helper()
	c, err := New(Options{API: answer, Key: []byte("key"), Log: zap.NewNop()})
	require.NoError(t, err)
	return c
}

func TestWhatIsNotOursIsWhatWasPinned(t *testing.T) {
	for _, dir := range []string{"assets", "testdata/axe"} {
		sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		require.NoError(t, err)
		found := 0
		for line := range strings.Lines(string(sums)) {
			sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			content, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			assert.Equal(t, sum, assets.Sum(content), name)
			found++
		}
		all, err := filepath.Glob(filepath.Join(dir, "*.min.js"))
		require.NoError(t, err)
		assert.Len(t, all, found, "each has a checksum")
	}
}

// TestTextsAreUsedAndThere: a text that a page names is there, and one that is there is used.
func TestTextsAreUsedAndThere(t *testing.T) {
	var sources strings.Builder
	for _, pattern := range []string{"*.go", "status/*.go", "words/amounts.go", "templates/*.html"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			sources.Write(content)
		}
	}
	used := sources.String()
	for _, key := range regexp.MustCompile(`\b(?:[tn]|Of)[ (]"([a-z_.]+)"`).FindAllStringSubmatch(used, -1) {
		if !strings.HasSuffix(key[1], ".") {
			assert.Contains(t, words.Texts, key[1])
		}
	}
	for _, g := range status.Groups {
		assert.Contains(t, words.Texts, "group."+g.ID)
		for _, state := range g.States {
			assert.Contains(t, words.Texts, "host."+string(state))
		}
	}
	made := []string{"host.", "cluster.", "group.", "stage.", "action.", "plan.", "approve.", "claim.", "wipe.", "signin.issuer.", "infraenv.rotated.", "role.", "step.", "image.", "check.", "severity.", "logs.", "wait."} // names with a state or an action at their end
	for key := range words.Texts {
		name := strings.TrimSuffix(key, ".1")
		assert.True(t, strings.Contains(used, `"`+name+`"`) || slices.ContainsFunc(made, func(prefix string) bool { return strings.HasPrefix(name, prefix) }), key)
	}
}

// TestValuesOfTheAPIHaveWords: none is shown as it is.
func TestValuesOfTheAPIHaveWords(t *testing.T) {
	for schema, kind := range map[string]string{"HostRole": "role", "HostStage": "step", "ImageType": "image", "EventSeverity": "severity"} {
		found := regexp.MustCompile(`(?s)\n    ` + schema + `:.*?enum: \[(.*?)\]`).FindSubmatch(api.Spec())
		require.NotNil(t, found, schema)
		for value := range strings.SplitSeq(string(found[1]), ",") {
			value = strings.TrimSpace(value)
			assert.Contains(t, words.Texts, kind+"."+value)
			assert.Equal(t, words.Texts[kind+"."+value], words.Named(kind, value))
		}
	}
	crd, err := os.ReadFile("../../../apis/crd/hive.openshift.io_clusterclaims.yaml")
	require.NoError(t, err)
	reasons := regexp.MustCompile(`(?s)waitingFor:.*?enum:\n(.*?)\n +type:`).FindSubmatch(crd)
	require.NotNil(t, reasons)
	for _, value := range regexp.MustCompile(`\w+`).FindAllString(string(reasons[1]), -1) {
		assert.Contains(t, words.Texts, "wait."+value)
	}
	for _, status := range []validate.Status{validate.Success, validate.Failure, validate.Pending, validate.Disabled} {
		assert.Contains(t, words.Texts, "check."+string(status))
	}
	assert.Equal(t, "<b>", words.Named("role", "<b>"))
}

// TestEachStateHasItsPlace compares the groups with the states of the API.
func TestEachStateHasItsPlace(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^\s+HostStatus: \{type: string, enum: \[([^\]]*)\]`).FindSubmatch(api.Spec())
	var states []string
	if listed != nil {
		states = strings.Split(string(listed[1]), ", ")
	} else { // over several lines
		block := regexp.MustCompile(`(?s)\n    HostStatus:.*?enum:(.*?)\n    [A-Z]`).FindSubmatch(api.Spec())
		require.NotNil(t, block)
		states = regexp.MustCompile(`[a-z][a-z-]+`).FindAllString(string(block[1]), -1)
	}
	require.Contains(t, states, "known-unbound")
	for _, state := range states {
		in := 0
		for _, g := range status.Groups {
			if slices.Contains(g.States, api.HostStatus(state)) {
				in++
			}
		}
		assert.Equal(t, 1, in, state)
	}
}

// TestNoPageHasInlineScriptsOrStyles: the policy would keep them from running, so that a page would not work.
func TestNoPageHasInlineScriptsOrStyles(t *testing.T) {
	require.NoError(t, fs.WalkDir(files, "templates", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		require.NoError(t, err)
		assert.NotRegexp(t, `<script>|<style|\sstyle=|\son[a-z]+=|javascript:|hx-on`, string(content), path)
		return nil
	}))
}

// jar hands the cookies of an answer back, as a browser does.
func jar(answer *httptest.ResponseRecorder) *http.Request {
	r := httptest.NewRequest(http.MethodGet, Base+"/", http.NoBody)
	for _, cookie := range answer.Result().Cookies() {
		if cookie.MaxAge >= 0 {
			r.AddCookie(cookie)
		}
	}
	return r
}

// vaultOf has the key of the consoles of tests.
func vaultOf(t *testing.T) *session.Vault {
	t.Helper()
	v, err := session.NewVault([]byte("key"), Base, time.Now)
	require.NoError(t, err)
	return v
}

func TestAFormOfAnotherSiteDoesNothing(t *testing.T) {
	done := 0
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			done++
		}
		_, _ = w.Write([]byte("[]"))
	})
	signed := httptest.NewRecorder()
	c.ServeHTTP(signed, httptest.NewRequest(http.MethodGet, Base+"/sign-in", http.NoBody))
	require.Equal(t, http.StatusSeeOther, signed.Code, "no token is asked for")
	cookies := jar(signed).Header.Get("Cookie")
	v := vaultOf(t)
	s, err := v.Open(jar(signed))
	require.NoError(t, err)
	send := func(csrf, site string) int {
		form := url.Values{"csrf": {csrf}, "name": {"e"}, "pull_secret": {"{}"}}
		r := httptest.NewRequest(http.MethodPost, Base+"/infra-envs", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Cookie", cookies)
		r.Header.Set("Sec-Fetch-Site", site)
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, r)
		return answer.Code
	}
	assert.Equal(t, http.StatusForbidden, send("", "same-origin"))
	assert.Equal(t, http.StatusForbidden, send("guessed", "same-origin"))
	assert.Equal(t, http.StatusForbidden, send(s.CSRF, "cross-site"))
	assert.Zero(t, done)
	send(s.CSRF, "same-origin")
	assert.Equal(t, 1, done)
}

func TestAFileThatEndsEarlyIsNotWhole(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "abc")
	})
	began := httptest.NewRecorder()
	require.NoError(t, vaultOf(t).Begin(began, "good", false))
	r := jar(began)
	r.URL.Path = Base + "/clusters/0b6fbd4c-5c5e-4c5e-9c3d-0c5d0f2b6a11/logs"
	answer := httptest.NewRecorder()
	c.ServeHTTP(answer, r)
	assert.Equal(t, "abc", answer.Body.String())
	assert.Equal(t, "10", answer.Header().Get("Content-Length"), "net/http cuts the connection")
}

func TestTheAPIDecidesWhoSeesWhat(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"reason":"not <b>yours</b>"}`)
	})
	for _, path := range []string{"/", "/machines", "/infra-envs", "/clusters/x"} {
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, Base+path, http.NoBody))
		assert.Equal(t, http.StatusSeeOther, answer.Code, path)
		assert.Equal(t, map[bool]string{true: Base + "/sign-in", false: Base + "/sign-in?next=" + url.QueryEscape(Base+path)}[path == "/"], answer.Header().Get("Location"))
	}
	v := vaultOf(t)
	for token, want := range map[string]int{"good": http.StatusForbidden, "ended": http.StatusSeeOther} {
		began := httptest.NewRecorder()
		require.NoError(t, v.Begin(began, token, false))
		r := jar(began)
		r.URL.Path = Base + "/machines"
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, r)
		assert.Equal(t, want, answer.Code, token)
		assert.NotContains(t, answer.Body.String(), "<b>yours")
		for header, value := range map[string]string{"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			assert.Contains(t, answer.Header().Get(header), value)
		}
	}
}

// TestAnAnswerIsReadAsItIsWritten: the stream of changes does not end.
func TestAnAnswerIsReadAsItIsWritten(t *testing.T) {
	more := make(chan string)
	c := inprocess.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for text := range more {
			if _, err := fmt.Fprint(w, text); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
		}
		panic("end")
	})}
	request := httptest.NewRequest(http.MethodGet, "http://console/", http.NoBody)
	go func() { more <- "one" }()
	response, err := c.RoundTrip(request)
	require.NoError(t, err)
	buffer := make([]byte, 8)
	n, err := response.Body.Read(buffer)
	require.NoError(t, err)
	assert.Equal(t, "one", string(buffer[:n]))
	close(more)
	_, err = response.Body.Read(buffer)
	require.ErrorContains(t, err, "the handler ended: end")
	require.NoError(t, response.Body.Close())
}
