// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agent"
	"github.com/muster-io/muster/agent-service/internal/app"
	"github.com/muster-io/muster/agent-service/internal/imagetest"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
)

const (
	patience = 2 * time.Minute
	tick     = 50 * time.Millisecond
)

//go:embed testdata/axe/axe-4.14.1.min.js
var axe string

// site is the whole service, as its program runs it, with a console.
type site struct {
	t       *testing.T
	address string
	key     *ecdsa.PrivateKey
	options app.Options
	stop    func()
	// logs are all that the service logs.
	logs *observer.ObservedLogs
}

// newSite starts the service with flags that overrule those of the site.
func newSite(t *testing.T, flags ...string) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{t: t, address: "127.0.0.1:" + porttest.Free(t)}
	var err error
	s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	require.NoError(t, err)
	issuer := filepath.Join(dir, "issuer.pem")
	require.NoError(t, os.WriteFile(issuer, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	s.options, err = app.ParseOptions(append([]string{
		"--listen=" + s.address, "--base-url=http://" + s.address, "--database=" + filepath.Join(dir, "a.db"), "--token-key=" + filepath.Join(dir, "a.key"), "--metrics-bind-address=0",
		"--live-images=" + imagetest.List(t), "--live-image-cache=" + filepath.Join(dir, "images"), "--oidc-issuer=https://issuer", "--oidc-key-file=" + issuer, "--oidc-admin-group=admins", "--oidc-viewer-group=viewers", "--console",
	}, flags...))
	require.NoError(t, err)
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// start runs the service until stop.
func (s *site) start() {
	s.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", s.address)
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan error, 1)
	core, logs := observer.New(zap.DebugLevel)
	s.logs = logs
	go func() { ended <- app.RunWith(ctx, s.options, zap.New(core), listener) }()
	s.stop = func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				s.t.Errorf("the service ended badly: %v", err)
			}
		case <-time.After(patience):
			assert.Fail(s.t, "the service does not stop")
		}
		s.stop = func() {}
	}
	require.Eventually(s.t, func() bool {
		response, err := http.Get("http://" + s.address + "/readyz")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, 10*time.Millisecond)
}

// token is a person's.
func (s *site) token(user string, groups ...string) string {
	s.t.Helper()
	return s.member(user, "", groups...)
}

// member is the token of a person of an organization, with --oidc-organization-claim=org.
func (s *site) member(user, organization string, groups ...string) string {
	s.t.Helper()
	raw, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": "https://issuer", "sub": user, "org": organization, "groups": groups, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(s.key)
	require.NoError(s.t, err)
	return raw
}

// call asks the API, with a header that holds a credential.
func (s *site) call(header, credential, method, path string, body any) []byte {
	s.t.Helper()
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		require.NoError(s.t, err)
		content = strings.NewReader(string(raw))
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.address+api.Base+path, content)
	require.NoError(s.t, err)
	request.Header.Set(header, credential)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close() //nolint:errcheck // it is only read
	raw, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	require.Less(s.t, response.StatusCode, 300, "%s %s: %s", method, path, raw)
	return raw
}

// imageToken is what machines find in the discovery image.
func (s *site) imageToken(person, infraEnv string) string {
	s.t.Helper()
	var ignition struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	require.NoError(s.t, json.Unmarshal(s.call("Authorization", "Bearer "+person, "GET", "/infra-envs/"+infraEnv+"/downloads/files?file_name=discovery.ign", nil), &ignition))
	for _, file := range ignition.Storage.Files {
		if file.Path == "/etc/muster/token" {
			token, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(file.Contents.Source, "data:;base64,"))
			require.NoError(s.t, err)
			return string(token)
		}
	}
	s.t.Fatal("the image holds no token")
	return ""
}

// report registers a machine that reports an inventory.
func (s *site) report(token, infraEnv, host string, inventory map[string]any) {
	s.t.Helper()
	output, err := json.Marshal(inventory)
	require.NoError(s.t, err)
	path := "/infra-envs/" + infraEnv + "/hosts"
	s.call("X-Secret-Key", token, "POST", path, map[string]any{"host_id": host})
	s.call("X-Secret-Key", token, "POST", path+"/"+host+"/instructions", map[string]any{"step_type": "inventory", "step_id": "inventory-1", "exit_code": 0, "output": string(output)})
}

// boot runs generated machines, with the agent's own program code, until the test ends.
func (s *site) boot(token, infraEnv, seed string, machines int) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = agent.Main(ctx, []string{"--url=http://" + s.address, "--infra-env-id=" + infraEnv, "--token=" + token, "--simulate=" + fmt.Sprint(machines), "--seed=" + seed, "--boot=100ms"}, io.Discard)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// TestMain stops the browser that tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	stopChromium()
	os.Exit(code)
}

// stopChromium stops the browser. It does nothing until a test starts one.
var stopChromium = func() {}

// startChromium starts a Chromium without a screen, once for all tests of the package: each start costs most of a second of the processor.
var startChromium = sync.OnceValues(func() (context.Context, error) {
	// The one without windows takes half of the processor.
	program, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		program, err = exec.LookPath("chromium")
	}
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.WindowSize(1360, 900), chromedp.WSURLReadTimeout(patience))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	shared, stopBrowser := chromedp.NewContext(allocator)
	stopChromium = func() {
		stopBrowser()
		stopAllocator()
	}
	return shared, chromedp.Do(shared)
})

// browserOf is the Chromium in which a test opens tabs.
func browserOf(t *testing.T) context.Context {
	t.Helper()
	shared, err := startChromium()
	needtest.Part(t, !errors.Is(err, exec.ErrNotFound), "there is no Chromium here: hack/prerequisites installs it")
	require.NoError(t, err)
	return shared
}

// tab is a page that a person looks at.
type tab struct {
	*testing.T
	ctx  context.Context
	site *site
}

// tab is a page with cookies, storage and downloads of its own, where no person is signed in.
func (s *site) tab(chromium context.Context, t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	limited, done := context.WithTimeout(ctx, 2*patience)
	t.Cleanup(done)
	return &tab{t, limited, s}
}

// open signs a person in, in a tab of its own.
func (s *site) open(chromium context.Context, t *testing.T, token string) *tab {
	t.Helper()
	b := s.tab(chromium, t)
	b.run(chromedp.Navigate("http://"+s.address+"/console"), chromedp.SendKeys(chromedp.CSS("#token"), token))
	b.press("Sign in")
	b.sees("h1", "Home")
	return b
}

// run does what a person does, one action after the other. One that met an element which a live part of the page replaced at that moment is begun again.
func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	for _, action := range actions {
		err := chromedp.Do(b.ctx, action)
		for err != nil && b.ctx.Err() == nil && strings.Contains(err.Error(), "node with given id") {
			err = chromedp.Do(b.ctx, action)
		}
		require.NoError(b, err)
	}
}

// visit opens a screen.
func (b *tab) visit(path string) {
	b.Helper()
	b.run(chromedp.Navigate("http://" + b.site.address + "/console" + path))
}

// press clicks on the button or link that a person reads, once it stays where it is: a click at the place where it was misses it.
func (b *tab) press(label string) {
	b.Helper()
	button := fmt.Sprintf(`//main//button[normalize-space()=%[1]q] | //main//a[normalize-space()=%[1]q]`, label)
	b.until(fmt.Sprintf(`(() => {
		const e = document.evaluate(%q, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue;
		if (!e || document.readyState !== "complete") return false;
		const before = e.placedAt;
		e.placedAt = JSON.stringify(e.getBoundingClientRect());
		return e.placedAt === before;
	})()`, button))
	b.run(chromedp.Click(button))
}

// set gives a field a value in one step, as a person does: an element that a live part of the page replaced has none to be sent.
func (b *tab) set(selector, value string) {
	b.Helper()
	b.until(fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		if (!e) return false;
		e.value = %q;
		e.dispatchEvent(new Event("change", { bubbles: true }));
		return e.value === %[2]q;
	})()`, selector, value))
}

// ask evaluates an expression in the page, and waits where that is a promise.
func ask[T any](b *tab, expression string) T {
	b.Helper()
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAsValue, func(p *runtime.EvaluateParams) { p.AwaitPromise = new(true) }))
	require.NoError(b, err, expression)
	return found
}

// sees waits until an element shows a text, without loading the page again.
func (b *tab) sees(selector, text string) {
	b.Helper()
	b.until(fmt.Sprintf(`Array.from(document.querySelectorAll(%q)).some(e => e.textContent.includes(%q))`, selector, text))
}

// until waits for an expression of the page. One that cannot be evaluated is asked again: a page is being left.
func (b *tab) until(expression string) {
	b.Helper()
	deadline := time.Now().Add(patience)
	for {
		found, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression, chromedp.EvalAsValue))
		if err == nil && found {
			return
		}
		if time.Now().After(deadline) || b.ctx.Err() != nil {
			require.Failf(b, "the page does not show it", "%s (%v)\nThe page says:\n%s", expression, err, ask[string](b, `location.href + "\n" + document.body.innerText`))
		}
		select {
		case <-b.ctx.Done():
		case <-time.After(tick):
		}
	}
}

// prefer shows pages as people do who prefer the light or the dark.
func (b *tab) prefer(scheme string) {
	b.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

// looksFine keeps pictures of the screen, and asks axe what keeps people from using it, in the light and in the dark.
func (b *tab) looksFine(name string) {
	b.Helper()
	ask[any](b, axe+"; null")
	for _, scheme := range []string{"dark", "light"} {
		b.prefer(scheme)
		b.picture(name + "-" + scheme)
		assert.Empty(b, ask[[]string](b, `axe.run().then(r => r.violations.filter(v => v.impact === "serious" || v.impact === "critical")
			.map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`), "axe on %s, %s", name, scheme)
	}
	b.fitsPhone(name)
}

// fitsPhone shows the screen as a phone does, where nothing may be wider than it.
func (b *tab) fitsPhone(name string) {
	b.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 375, Height: 812, DeviceScaleFactor: 1, Mobile: true})
		return err
	}))
	b.picture(name + "-phone")
	assert.Empty(b, ask[[]string](b, `document.documentElement.scrollWidth <= 375 ? [] : Array.from(document.querySelectorAll("body *")).filter(e => e.getBoundingClientRect().right > 375 && !e.parentElement.closest(".scroll")).map(e => e.outerHTML.slice(0, 120))`), "wider than a phone: %s", name)
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.ClearDeviceMetricsOverride, cdp.Empty{})
		return err
	}))
}

// picture keeps what a person sees as an artefact of the test.
func (b *tab) picture(name string) {
	b.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(b.ArtifactDir(), name+".png"), png, 0o600))
}

// download lets the browser keep what this tab downloads, and returns where.
func (b *tab) download() string {
	b.Helper()
	dir, own := b.TempDir(), chromedp.FromContext(b.ctx).BrowserContextID
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir, BrowserContextID: own})
		return err
	}))
	return dir
}

// makeInfraEnv makes one by the API, and returns its id.
func (s *site) makeInfraEnv(person, name string) string {
	s.t.Helper()
	var made struct{ ID string }
	require.NoError(s.t, json.Unmarshal(s.call("Authorization", "Bearer "+person, "POST", "/infra-envs", map[string]any{"name": name, "pull_secret": `{"auths":{}}`}), &made))
	return made.ID
}
