// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/image"
	"github.com/muster-io/muster/agent-service/internal/imagetest"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/token"
	"github.com/muster-io/muster/apis/porttest"
)

// listen takes an address and says how it is reached.
func listen(t *testing.T) (listener net.Listener, url string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener, "http://" + listener.Addr().String()
}

// start runs a part of the service until the test or stop ends it.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Error("it does not stop")
		}
	}
	t.Cleanup(stop)
	return stop
}

// answer is what matters of a response.
type answer struct {
	StatusCode int
	Header     http.Header
}

func get(t *testing.T, url string, headers ...string) (answer, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close() //nolint:errcheck // it is only read
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answer{response.StatusCode, response.Header}, content
}

func untilReady(t *testing.T, url string) {
	t.Helper()
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/readyz", http.NoBody)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, 10*time.Millisecond)
}

// apart is the service, and the process that serves its images.
type apart struct {
	*testing.T
	service, images string
	// settings are those of the service that stay.
	settings    []string
	stopService func()
	api         string
}

// startService starts the service, and once more after it was stopped.
func (a *apart) startService(more ...string) {
	a.Helper()
	listener, err := (&net.ListenConfig{}).Listen(a.Context(), "tcp", strings.TrimPrefix(a.service, "http://"))
	require.NoError(a, err)
	o, err := ParseOptions(append(a.settings, more...))
	require.NoError(a, err)
	a.stopService = start(a.T, func(ctx context.Context) error { return RunWith(ctx, o, zap.NewNop(), listener) })
	untilReady(a.T, a.service)
}

func startApart(t *testing.T) *apart {
	t.Helper()
	dir := t.TempDir()
	imagesAt, images := listen(t)
	a := &apart{T: t, service: "http://127.0.0.1:" + porttest.Free(t), images: images}
	a.api = a.service + "/api/assisted-install/v2"
	live := imagetest.List(t)
	a.settings = []string{"--live-images=" + live, "--database=" + filepath.Join(dir, "a.db"), "--token-key=" + filepath.Join(dir, "a.key"), "--metrics-bind-address=0", "--image-url=" + a.images}
	a.startService("--base-url=" + a.service)
	i, err := parseImageOptions([]string{
		"--service-url=" + a.service, "--base-url=" + a.images, "--live-images=" + live, "--live-image-cache=" + filepath.Join(dir, "images"), "--metrics-bind-address=0",
	})
	require.NoError(t, err)
	start(t, func(ctx context.Context) error { return runImagesWith(ctx, i, zap.NewNop(), imagesAt) })
	untilReady(t, a.images)
	return a
}

// The service keeps the secrets and the data; another process serves the images, and knows neither.
func TestImagesAreServedByAProcessOfTheirOwn(t *testing.T) {
	a := startApart(t)
	code, env := call(t, http.MethodPost, a.api+"/infra-envs", `{"name":"e","pull_secret":"{\"auths\":{}}"}`)
	require.Equal(t, http.StatusCreated, code, env)
	download, _ := env["download_url"].(string)
	require.True(t, strings.HasPrefix(download, a.images+"/images/"), download)

	whole, iso := get(t, download)
	require.Equal(t, http.StatusOK, whole.StatusCode)
	assert.NotEmpty(t, whole.Header.Get("ETag"))
	// The RAM disk shows, uncompressed in front of the overlay, that this is the live image; the overlay is the same as the service renders.
	begin := bytes.Index(iso, []byte{0x1f, 0x8b, 8})
	require.Positive(t, begin)
	packed := iso[begin : begin+256]
	_, initrd := get(t, strings.Replace(download, "discovery.iso", "pxe-initrd", 1))
	assert.True(t, bytes.HasPrefix(initrd, []byte("initrd")))
	assert.True(t, bytes.Contains(initrd, packed), "ISO and RAM disk hold the same overlay")
	part, content := get(t, download, "Range", "bytes=32768-34815")
	require.Equal(t, http.StatusPartialContent, part.StatusCode)
	assert.Equal(t, iso[32768:34816], content)

	response, script := get(t, a.api+"/infra-envs/"+env["id"].(string)+"/downloads/files?file_name=ipxe-script")
	require.Equal(t, http.StatusOK, response.StatusCode, string(script))
	assert.Contains(t, string(script), a.images+"/boot-artifacts/kernel")
	_, kernel := get(t, a.images+"/boot-artifacts/kernel")
	assert.Equal(t, "kernel", string(kernel))

	// The service itself has no images, and the other process nothing else.
	missing, _ := get(t, strings.Replace(download, a.images, a.service, 1))
	assert.Equal(t, http.StatusNotFound, missing.StatusCode)
	missing, _ = get(t, strings.Replace(a.api, a.service, a.images, 1)+"/infra-envs")
	assert.Equal(t, http.StatusNotFound, missing.StatusCode)
}

// The chosen version is returned also where another process serves the images, and also where none was asked for.
func TestTheChosenVersionIsReturnedWithImagesInAProcessOfTheirOwn(t *testing.T) {
	a := startApart(t)
	here := &image.Catalog{Versions: versionsIn(t, a.settings)}
	for asked, want := range map[string]string{"": here.Chosen("", "x86_64"), `,"openshift_version":"` + here.Chosen("", "x86_64") + `"`: here.Chosen("", "x86_64")} {
		code, env := call(t, http.MethodPost, a.api+"/infra-envs", `{"name":"e","pull_secret":"{\"auths\":{}}"`+asked+`}`)
		require.Equal(t, http.StatusCreated, code, env)
		require.NotEmpty(t, want)
		assert.Equal(t, want, env["openshift_version"])
		_, env = call(t, http.MethodGet, a.api+"/infra-envs/"+env["id"].(string), "")
		assert.Equal(t, want, env["openshift_version"])
	}
}

// versionsIn are the live images that settings list.
func versionsIn(t *testing.T, settings []string) []image.Version {
	t.Helper()
	o, err := ParseOptions(settings)
	require.NoError(t, err)
	versions, err := o.liveImages()
	require.NoError(t, err)
	return versions
}

func TestAnImageEndsInTheOtherProcessToo(t *testing.T) {
	a := startApart(t)
	_, env := call(t, http.MethodPost, a.api+"/infra-envs", `{"name":"e","pull_secret":"{\"auths\":{}}"}`)
	download, _ := env["download_url"].(string)
	before, _ := get(t, download)
	require.Equal(t, http.StatusOK, before.StatusCode)

	code, _ := call(t, http.MethodPost, a.api+"/infra-envs/"+env["id"].(string)+"/regenerate-signing-key", "")
	require.Equal(t, http.StatusNoContent, code)
	revoked, reason := get(t, download)
	assert.Equal(t, http.StatusNotFound, revoked.StatusCode)
	assert.Contains(t, string(reason), "ask for the image's address again")
	forged, _ := get(t, a.images+"/images/"+strings.Repeat("A", 43)+"/discovery.iso")
	assert.Equal(t, http.StatusNotFound, forged.StatusCode)

	_, env = call(t, http.MethodGet, a.api+"/infra-envs/"+env["id"].(string), "")
	again, _ := env["download_url"].(string)
	after, _ := get(t, again)
	require.Equal(t, http.StatusOK, after.StatusCode)
	assert.NotEqual(t, before.Header.Get("ETag"), after.Header.Get("ETag"), "the new image has a new token")
	a.stopService()
	away, _ := get(t, again)
	assert.Equal(t, http.StatusServiceUnavailable, away.StatusCode)
	assert.NotEmpty(t, away.Header.Get("Retry-After"))
	kernel, _ := get(t, a.images+"/boot-artifacts/kernel")
	assert.Equal(t, http.StatusOK, kernel.StatusCode, "files that are the same for all need no service")
}

func TestTheOtherProcessFollowsTheSettingsOfTheService(t *testing.T) {
	a := startApart(t)
	code, env := call(t, http.MethodPost, a.api+"/infra-envs", `{"name":"e","pull_secret":"{\"auths\":{}}"}`)
	require.Equal(t, http.StatusCreated, code, env)
	download, _ := env["download_url"].(string)
	// image takes the tag of the image, which holds what the service renders now.
	image := func() (tag string) {
		response, iso := get(t, download)
		require.Equal(t, http.StatusOK, response.StatusCode)
		_, rendered := get(t, a.api+"/infra-envs/"+env["id"].(string)+"/downloads/files?file_name=discovery.ign")
		assert.Equal(t, string(rendered), string(ignitionOf(t, iso)))
		return response.Header.Get("ETag")
	}
	before := image()
	a.stopService()
	a.startService("--base-url=http://muster.example.com")
	moved := image()
	assert.NotEqual(t, before, moved)
	a.stopService()
	a.startService("--base-url=http://muster.example.com", "--ca-file="+newPrivate(t).authority)
	assert.NotEqual(t, moved, image())
	a.stopService()
	a.startService("--base-url=" + a.service)
	assert.Equal(t, before, image(), "the tag is of the content")
}

func TestAnImageServiceThatDoesNotAnswerIsAskedOnce(t *testing.T) {
	var asked atomic.Int64
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	d := &discovery{images: silent.URL, client: remoteClient}
	for range 100 {
		assert.Nil(t, d.obstacle(t.Context(), "key"), "no failure is known")
	}
	assert.EqualValues(t, 1, asked.Load())
}

// An image holds more than the settings of its InfraEnv, and its date follows that too.
func TestDatesOfImagesFollowTheAgent(t *testing.T) {
	listener, url := listen(t)
	s := startSite(t, listener, url, http.DefaultClient, imagetest.List(t))
	s.offer("first")
	_, path := s.infraEnv("")
	before, _ := get(t, url+path)
	date := before.Header.Get("Last-Modified")
	same, _ := get(t, url+path, "If-Modified-Since", date)
	require.Equal(t, http.StatusNotModified, same.StatusCode)
	part, _ := get(t, url+path, "Range", "bytes=0-9", "If-Range", date)
	assert.Equal(t, http.StatusOK, part.StatusCode, "a date is no promise that parts belong together")
	part, _ = get(t, url+path, "Range", "bytes=0-9", "If-Range", before.Header.Get("ETag"))
	assert.Equal(t, http.StatusPartialContent, part.StatusCode)

	s.offer("second")
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(s.agents, "agent-"+hardware.Architecture(runtime.GOARCH)), later, later))
	after, _ := get(t, url+path, "If-Modified-Since", date)
	require.Equal(t, http.StatusOK, after.StatusCode)
	assert.NotEqual(t, before.Header.Get("ETag"), after.Header.Get("ETag"))
	assert.Equal(t, later.UTC().Format(http.TimeFormat), after.Header.Get("Last-Modified"))
}

// The token of an image is another one in each period, and the image with it.
func TestDatesOfImagesFollowTheirTokens(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	svc := service.New(db, service.Options{})
	key, err := token.Key(filepath.Join(t.TempDir(), "a.key"))
	require.NoError(t, err)
	ahead := time.Duration(0)
	authority, err := token.New(token.Options{Key: key, Generations: svc, Now: func() time.Time { return time.Now().Add(ahead) }})
	require.NoError(t, err)
	env, err := svc.CreateInfraEnv(t.Context(), domain.Kubernetes, domain.NewInfraEnv{Name: "e"})
	require.NoError(t, err)
	programs, err := newPrograms(t.TempDir())
	require.NoError(t, err)
	d := newDiscovery(Options{}, nil, svc, authority, "", programs, zap.NewNop())
	short, err := authority.Short(env.ID, env.Generations)
	require.NoError(t, err)
	now, err := d.Describe(t.Context(), short)
	require.NoError(t, err)
	assert.True(t, env.ImageUpdatedAt.Equal(now.ModTime))
	ahead = 60 * 24 * time.Hour
	later, err := d.Describe(t.Context(), short)
	require.NoError(t, err)
	assert.NotEqual(t, now.Revision, later.Revision)
	assert.True(t, authority.ImageIssued().Equal(later.ModTime))
}

// TestTheServiceIsNotAskedThroughAProxy of the site, by its name in the cluster. A process reads its environment once, so that the test has one of its own.
func TestTheServiceIsNotAskedThroughAProxy(t *testing.T) {
	if os.Getenv("HTTP_PROXY") == "" {
		asked := make(chan string, 10)
		proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.String() }))
		t.Cleanup(proxy.Close)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(cmd.Environ(), "HTTP_PROXY="+proxy.URL, "NO_PROXY=.svc,.cluster.local,10.0.0.0/8")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Len(t, asked, 1)
		assert.Equal(t, "http://images.example.com/x", <-asked)
		return
	}
	client, err := (&ImageOptions{}).client()
	require.NoError(t, err)
	for _, address := range []string{"http://images.example.com/x", "http://agent-service/x"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		require.NoError(t, err)
		if response, err := client.Do(request); err == nil {
			require.NoError(t, response.Body.Close())
		}
	}
}

func TestOptionsOfImagesSayWhatIsWrong(t *testing.T) {
	for argument, says := range map[string]string{
		"--log-level=loud":   "write debug, info or error",
		"--service-url=here": "write http(s)://host:port",
		"--base-url=here":    "write http(s)://host:port",
		"--live-images=":     "write the file that lists them",
		"--metrics-auth=all": "write none or kubernetes",
		"surplus":            "all settings are flags",
	} {
		_, err := Parse([]string{"images", argument})
		require.ErrorContains(t, err, says, argument)
	}
	_, err := Parse([]string{"images", "--live-images=live.json"})
	require.NoError(t, err)
	_, err = Parse([]string{"--image-url=here"})
	require.ErrorContains(t, err, "write http(s)://host:port")
}

// Machines fetch what the minimal image leaves out, which takes a network: where one is stated, it comes with the whole image.
func TestAnInfraEnvWithNetworksGetsTheWholeImage(t *testing.T) {
	listener, url := listen(t)
	// It does not say how its minimal form comes out of it, and so it has none.
	s := startSite(t, listener, url, http.DefaultClient, imagetest.List(t, map[string]string{"images/pxeboot/rootfs.img": "root"}))
	networks := `,"static_network_config":[{"network_yaml":"interfaces: []","mac_interface_map":[{"mac_address":"52:54:00:00:00:01","logical_nic_name":"nic0"}]}]`
	_, minimal := s.infraEnv(`,"image_type":"minimal-iso"`)
	response, reason := get(t, url+minimal)
	require.Equal(t, http.StatusConflict, response.StatusCode, string(reason))
	assert.Contains(t, string(reason), "no minimal form")
	_, whole := s.infraEnv(`,"image_type":"minimal-iso"` + networks)
	response, iso := get(t, url+whole)
	require.Equal(t, http.StatusOK, response.StatusCode)
	assert.NotContains(t, string(iso), "rootfs_url")
}

// Settings that make no image are refused when they are written; settings that have become unusable are reported without a failure.
func TestAnInfraEnvThatCanHaveNoImageIsRefused(t *testing.T) {
	listener, url := listen(t)
	s := startSite(t, listener, url, http.DefaultClient, imagetest.List(t))
	base := url + "/api/assisted-install/v2/infra-envs"
	var networks []string
	for range 8 {
		filler := make([]byte, 45<<10)
		_, err := rand.Read(filler)
		require.NoError(t, err)
		networks = append(networks, `{"network_yaml":"a: `+base64.StdEncoding.EncodeToString(filler)+`"}`)
	}
	large := `"static_network_config":[` + strings.Join(networks, ",") + `]`
	for reason, more := range map[string]string{
		"the live image has room for":                            large,
		"no live image of version nope is configured for x86_64": `"openshift_version":"nope","cpu_architecture":"x86_64"`,
		"no live image is configured for s390x: choose another":  `"cpu_architecture":"s390x"`,
		"has a line break or another control character":          `"kernel_arguments":[{"operation":"append","value":"\"b\nc\""}]`,
	} {
		code, refused := call(t, http.MethodPost, base, `{"name":"e","pull_secret":"{\"auths\":{}}",`+more+`}`)
		require.Equal(t, http.StatusBadRequest, code, reason)
		assert.Contains(t, refused["reason"], reason)
	}
	id, _ := s.infraEnv("")
	code, refused := call(t, http.MethodPatch, base+"/"+id, `{`+large+`}`)
	require.Equal(t, http.StatusBadRequest, code)
	assert.Contains(t, refused["reason"], "the live image has room for")

	// Its ignition has an address that needs no header.
	code, signed := call(t, http.MethodGet, base+"/"+id+"/downloads/files-presigned?file_name=discovery.ign", "")
	require.Equal(t, http.StatusOK, code, signed)
	response, content := get(t, signed["url"].(string))
	require.Equal(t, http.StatusOK, response.StatusCode, string(content))
	assert.True(t, json.Valid(content))
	response, _ = get(t, strings.Replace(signed["url"].(string), "discovery.ign", "ipxe-script", 1))
	assert.Equal(t, http.StatusUnauthorized, response.StatusCode, "it opens one file")
}

// Which live images there are, is known to the process that serves them.
func TestAScriptOfAnImageThatIsNotThereIsNoFailure(t *testing.T) {
	a := startApart(t)
	for _, more := range []string{`"openshift_version":"nope"`, `"cpu_architecture":"s390x"`} {
		code, env := call(t, http.MethodPost, a.api+"/infra-envs", `{"name":"e","pull_secret":"{\"auths\":{}}",`+more+`}`)
		require.Equal(t, http.StatusCreated, code, env)
		code, refused := call(t, http.MethodGet, a.api+"/infra-envs/"+env["id"].(string)+"/downloads/files?file_name=ipxe-script", "")
		assert.Equal(t, http.StatusConflict, code, refused)
		assert.Contains(t, refused["reason"], "no live image")
	}
}
