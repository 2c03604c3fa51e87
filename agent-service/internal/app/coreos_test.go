// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ignitionv3 "github.com/coreos/ignition/v2/config/v3_1"
	"github.com/coreos/ignition/v2/config/v3_1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/imagetest"
	"github.com/muster-io/muster/apis/pki"
)

// private is an authority that nothing but its own certificate is trusted by, and a server's certificate of it for this machine.
type private struct {
	authority, certificate, key string // files
	client                      *http.Client
	server                      tls.Certificate
}

func newPrivate(t *testing.T) *private {
	t.Helper()
	valid := pki.Period{From: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}
	authority, err := pki.NewAuthority("private authority", valid)
	require.NoError(t, err)
	server, err := authority.Issue(pki.Server("127.0.0.1"), valid)
	require.NoError(t, err)
	ca, _, err := authority.Encode()
	require.NoError(t, err)
	certificate, key, err := server.Encode()
	require.NoError(t, err)
	dir := t.TempDir()
	p := &private{authority: filepath.Join(dir, "authority.pem"), certificate: filepath.Join(dir, "server.pem"), key: filepath.Join(dir, "server.key")}
	for path, text := range map[string][]byte{p.authority: ca, p.certificate: certificate, p.key: key} {
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
	p.server, err = tls.LoadX509KeyPair(p.certificate, p.key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	p.client = &http.Client{Transport: transport}
	return p
}

// site is a service with a live image, as people reach it.
type site struct {
	t      *testing.T
	url    string
	client *http.Client
	// agents is the directory of the agents that it has.
	agents string
}

// startSite starts a service on a listener; url is how machines reach it.
func startSite(t *testing.T, listener net.Listener, url string, client *http.Client, live string, arguments ...string) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{t: t, url: url, client: client, agents: filepath.Join(dir, "agents")}
	require.NoError(t, os.Mkdir(s.agents, 0o750))
	o, err := ParseOptions(append([]string{
		"--database=" + filepath.Join(dir, "a.db"), "--token-key=" + filepath.Join(dir, "a.key"), "--metrics-bind-address=0", "--base-url=" + url,
		"--live-images=" + live, "--live-image-cache=" + filepath.Join(dir, "images"), "--agent-directory=" + s.agents,
	}, arguments...))
	require.NoError(t, err)
	start(t, func(ctx context.Context) error { return RunWith(ctx, o, zap.NewNop(), listener) })
	require.Eventually(t, func() bool {
		status, _, err := s.ask(http.MethodGet, "/readyz", "")
		return err == nil && status == http.StatusOK
	}, patience, 10*time.Millisecond)
	return s
}

func (s *site) ask(method, path, body string) (status int, content []byte, err error) {
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	content, err = io.ReadAll(response.Body)
	return response.StatusCode, content, err
}

// offer puts an agent for this machine into the directory of agents.
func (s *site) offer(content string) {
	s.t.Helper()
	path := filepath.Join(s.agents, "agent-"+hardware.Architecture(runtime.GOARCH))
	require.NoError(s.t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(s.t, os.Rename(path+".new", path))
}

// infraEnv makes one, and says where its image is.
func (s *site) infraEnv(more string) (id, image string) {
	s.t.Helper()
	status, content, err := s.ask(http.MethodPost, "/api/assisted-install/v2/infra-envs", `{"name":"e","pull_secret":"{\"auths\":{}}","cpu_architecture":"`+hardware.Architecture(runtime.GOARCH)+`"`+more+`}`)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusCreated, status, string(content))
	var env struct {
		ID          string `json:"id"`
		DownloadURL string `json:"download_url"`
	}
	require.NoError(s.t, json.Unmarshal(content, &env))
	return env.ID, strings.TrimPrefix(env.DownloadURL, s.url)
}

// ignition takes the configuration out of a downloaded image.
func (s *site) ignition(image string) []byte {
	s.t.Helper()
	status, iso, err := s.ask(http.MethodGet, image, "")
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, status, image)
	return ignitionOf(s.t, iso)
}

func ignitionOf(t *testing.T, iso []byte) []byte {
	t.Helper()
	begin := bytes.Index(iso, []byte{0x1f, 0x8b, 8})
	require.Positive(t, begin)
	packed, err := gzip.NewReader(bytes.NewReader(iso[begin:]))
	require.NoError(t, err)
	packed.Multistream(false)
	archive, err := io.ReadAll(packed)
	require.NoError(t, err)
	for len(archive) > 110 {
		size, err := strconv.ParseInt(string(archive[54:62]), 16, 64)
		require.NoError(t, err)
		name, err := strconv.ParseInt(string(archive[94:102]), 16, 64)
		require.NoError(t, err)
		content := (110 + name + 3) &^ 3
		if string(archive[110:110+name-1]) == "config.ign" {
			return archive[content : content+size]
		}
		archive = archive[(content+size+3)&^3:]
	}
	t.Fatal("the image has no ignition")
	return nil
}

// booted is what becomes of an ignition in a system of CoreOS: its files, below a directory instead of the root, and its units.
type booted struct {
	t    *testing.T
	root string
	// units are settings by the names of units.
	units map[string]map[string]string
	// environment is what the unit of the agent gives to programs.
	environment []string
	printed     printed
}

// printed is what programs say.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (p *printed) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(data)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// carried is what an address holds in itself.
func carried(t *testing.T, source string) []byte {
	t.Helper()
	encoded, found := strings.CutPrefix(source, "data:;base64,")
	require.True(t, found, "ignition fetches no file itself")
	content, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	return content
}

func boot(t *testing.T, ignition []byte) *booted {
	t.Helper()
	b := &booted{t: t, root: t.TempDir(), units: map[string]map[string]string{}}
	var config struct {
		Storage struct {
			Files []struct {
				Path     string
				Mode     os.FileMode
				Contents struct{ Source string }
			}
		}
		Systemd struct {
			Units []struct {
				Name, Contents string
				Enabled        bool
			}
		}
	}
	require.NoError(t, json.Unmarshal(ignition, &config))
	for _, f := range config.Storage.Files {
		b.write(f.Path, carried(t, f.Contents.Source), f.Mode)
	}
	for _, unit := range config.Systemd.Units {
		require.True(t, unit.Enabled, unit.Name)
		b.write("/etc/systemd/system/"+unit.Name, []byte(unit.Contents), 0o644)
		b.units[unit.Name] = map[string]string{}
		for line := range strings.Lines(unit.Contents) {
			if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found {
				b.units[unit.Name][name] = value
			}
		}
	}
	settings, err := os.ReadFile(b.at(b.units["agent.service"]["EnvironmentFile"]))
	require.NoError(t, err)
	b.environment = []string{"PATH=" + os.Getenv("PATH")}
	for line := range strings.Lines(string(settings)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		b.environment = append(b.environment, name+"="+b.at(value))
	}
	return b
}

// at is where a path of the system is; other words stay as they are.
func (b *booted) at(word string) string {
	if strings.HasPrefix(word, "/") {
		return filepath.Join(b.root, word)
	}
	return word
}

func (b *booted) write(path string, content []byte, mode os.FileMode) {
	b.t.Helper()
	require.NoError(b.t, os.MkdirAll(filepath.Dir(b.at(path)), 0o750))
	require.NoError(b.t, os.WriteFile(b.at(path), content, mode))
	require.NoError(b.t, os.Chmod(b.at(path), mode))
}

// run starts what a unit says, and ends it with the test. The channel tells how it ended.
func (b *booted) run(unit, setting string, more ...string) <-chan error {
	b.t.Helper()
	require.NotEmpty(b.t, b.units[unit][setting])
	var words []string
	for word := range strings.FieldsSeq(b.units[unit][setting]) {
		if word != "/bin/sh" { // that of this machine
			word = b.at(word)
		}
		words = append(words, word)
	}
	words = append(words, more...)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Env, command.Stdout, command.Stderr = b.environment, &b.printed, &b.printed
	command.WaitDelay = 10 * time.Second // a child of the script may hold the output
	require.NoError(b.t, command.Start())
	ended := make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		ended <- command.Wait()
		close(gone)
	}()
	b.t.Cleanup(func() {
		cancel()
		<-gone
	})
	return ended
}

// prints waits until a text was printed.
func (b *booted) prints(text string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return strings.Contains(b.printed.String(), text) }, patience, 10*time.Millisecond, "%s", &b.printed)
}

// fetched waits until the agent is there, and says what it is.
func (b *booted) fetched(ended <-chan error) string {
	b.t.Helper()
	select {
	case err := <-ended:
		require.NoError(b.t, err, b.printed.String())
	case <-time.After(patience):
		b.t.Fatal(b.printed.String())
	}
	path := b.at("/usr/local/bin/agent")
	info, err := os.Stat(path)
	require.NoError(b.t, err)
	assert.Equal(b.t, os.FileMode(0o755), info.Mode().Perm())
	assert.NoFileExists(b.t, path+".part")
	content, err := os.ReadFile(path)
	require.NoError(b.t, err)
	return string(content)
}

// nothing makes sure that no agent can be started.
func (b *booted) nothing() {
	b.t.Helper()
	assert.NoFileExists(b.t, b.at("/usr/local/bin/agent"))
}

func TestASystemOfCoreOSStartsTheAgent(t *testing.T) {
	agent := filepath.Join(t.TempDir(), "agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", agent, "../../cmd/agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	program, err := os.ReadFile(agent)
	require.NoError(t, err)
	for name, more := range map[string]map[string]string{
		"ignition.img": nil,
		"igninfo.json": {"coreos/igninfo.json": `{"file":"images/cdboot.img","offset":4096,"length":65536}`, "images/cdboot.img": strings.Repeat("\x00", 128<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			trust := newPrivate(t)
			listener, address := listen(t)
			s := startSite(t, listener, strings.Replace(address, "http://", "https://", 1), trust.client, imagetest.List(t, more),
				"--tls-certificate="+trust.certificate, "--tls-key="+trust.key, "--ca-file="+trust.authority)
			s.offer(string(program))
			id, image := s.infraEnv("")
			b := boot(t, s.ignition(image))
			for path, mode := range map[string]os.FileMode{"/etc/muster/agent.env": 0o600, "/etc/muster/token": 0o600, "/usr/local/bin/fetch-agent": 0o755} {
				info, err := os.Stat(b.at(path))
				require.NoError(t, err)
				assert.Equal(t, mode, info.Mode().Perm(), path)
			}
			assert.True(t, bytes.Equal(program, []byte(b.fetched(b.run("agent.service", "ExecStartPre")))), "the agent that the service has")
			assert.NotContains(t, b.printed.String(), "another agent", "it is the one that the image names")
			b.verify()

			b.run("agent.service", "ExecStart", "--simulate=1")
			require.Eventually(t, func() bool {
				status, hosts, err := s.ask(http.MethodGet, "/api/assisted-install/v2/infra-envs/"+id+"/hosts", "")
				return err == nil && status == http.StatusOK && bytes.Contains(hosts, []byte(`"known-unbound"`))
			}, patience, 100*time.Millisecond, "%s", &b.printed)

			// Started again, it is there already.
			require.NoError(t, <-b.run("agent.service", "ExecStartPre"))
			assert.Equal(t, 1, strings.Count(b.printed.String(), "fetching the agent"))
		})
	}
}

// verify lets systemd read the units.
func (b *booted) verify() {
	b.t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		b.t.Log("there is no systemd-analyze: the units were not verified")
		return
	}
	// Programs and targets of every system are looked for, too.
	b.write("/bin/sh", nil, 0o755)
	for _, target := range []string{"sysinit", "basic", "shutdown", "multi-user", "network-online", "network-pre"} {
		b.write("/usr/lib/systemd/system/"+target+".target", []byte("[Unit]\n"), 0o644)
	}
	for unit := range b.units {
		output, err := exec.CommandContext(b.t.Context(), analyze, "--root="+b.root, "verify", unit).CombinedOutput()
		require.NoError(b.t, err, string(output))
		assert.NotContains(b.t, string(output), unit)
	}
}

func TestAnAgentThatComesDamagedIsFetchedAgain(t *testing.T) {
	trust := newPrivate(t)
	listener, address := listen(t)
	target, err := url.Parse(address)
	require.NoError(t, err)
	var fetches atomic.Int64
	// A proxy that ends TLS in front of the service damages the first two.
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(response *http.Response) error {
			if !strings.HasSuffix(response.Request.URL.Path, "/downloads/agent") || fetches.Add(1) > 2 {
				return nil
			}
			content, err := io.ReadAll(response.Body)
			content[len(content)-1] ^= 1
			response.Body = io.NopCloser(bytes.NewReader(content))
			return err
		},
	})
	front.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{trust.server}}
	front.StartTLS()
	t.Cleanup(front.Close)
	s := startSite(t, listener, front.URL, trust.client, imagetest.List(t), "--ca-file="+trust.authority)
	s.offer("the agent")
	_, image := s.infraEnv("")
	b := boot(t, s.ignition(image))
	ended := b.run("agent.service", "ExecStartPre")
	b.prints("refused an agent with the checksum")
	b.nothing()
	assert.Equal(t, "the agent", b.fetched(ended))
	assert.EqualValues(t, 3, fetches.Load())
	assert.Equal(t, 2, strings.Count(b.printed.String(), "refused"))
}

func TestAnAgentIsWaitedFor(t *testing.T) {
	trust := newPrivate(t)
	listener, address := listen(t)
	s := startSite(t, listener, strings.Replace(address, "http://", "https://", 1), trust.client, imagetest.List(t),
		"--tls-certificate="+trust.certificate, "--tls-key="+trust.key, "--ca-file="+trust.authority)
	_, image := s.infraEnv("")
	b := boot(t, s.ignition(image))
	ended := b.run("agent.service", "ExecStartPre")
	b.prints("the service answers with 404")
	b.prints("put it as agent-" + hardware.Architecture(runtime.GOARCH) + " into the directory that --agent-directory names")
	b.nothing()
	s.offer("the agent of later")
	assert.Equal(t, "the agent of later", b.fetched(ended), "the certificate proves who has it")
	assert.Contains(t, b.printed.String(), "another agent than when this image was made")
}

// Without TLS nothing but the checksum in the image says that the agent is the service's.
func TestWithoutTLSOnlyTheAgentThatTheImageNamesIsTaken(t *testing.T) {
	listener, address := listen(t)
	s := startSite(t, listener, address, http.DefaultClient, imagetest.List(t))
	var proxied atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) { proxied.Add(1) }})
	t.Cleanup(proxy.Close)
	s.offer("one")
	_, image := s.infraEnv(`,"proxy":{"http_proxy":"` + proxy.URL + `"}`)
	b := boot(t, s.ignition(image))
	// A system with SELinux.
	tools, labelled := t.TempDir(), filepath.Join(t.TempDir(), "labelled")
	for name, does := range map[string]string{"selinuxenabled": "exit 0", "chcon": "echo \"$@\" >>" + labelled} {
		require.NoError(t, os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"+does+"\n"), 0o700))
	}
	b.environment[0] = "PATH=" + tools + ":" + os.Getenv("PATH")
	s.offer("two")
	ended := b.run("agent.service", "ExecStartPre")
	b.prints("boot a new image")
	b.nothing()
	assert.NoFileExists(t, labelled)
	s.offer("one")
	assert.Equal(t, "one", b.fetched(ended))
	assert.Positive(t, proxied.Load(), "the proxy is used")
	label, err := os.ReadFile(labelled)
	require.NoError(t, err)
	assert.Equal(t, "-t bin_t "+b.at("/usr/local/bin/agent.part")+"\n", string(label))

	s.offer("two")
	again := boot(t, s.ignition(image))
	assert.Equal(t, "two", again.fetched(again.run("agent.service", "ExecStartPre")), "an image that is fetched now names the agent of now")
}

func TestTheAgentIsFetchedInParts(t *testing.T) {
	listener, address := listen(t)
	s := startSite(t, listener, address, http.DefaultClient, imagetest.List(t))
	path := address + "/api/assisted-install/v2/downloads/agent?arch="
	missing, reason := get(t, path+"s390x")
	assert.Equal(t, http.StatusNotFound, missing.StatusCode)
	assert.Contains(t, string(reason), "this service has no agent for s390x; put it as agent-s390x into the directory that --agent-directory names")
	refused, _ := get(t, path+"vax")
	assert.Equal(t, http.StatusBadRequest, refused.StatusCode)

	require.NoError(t, os.WriteFile(filepath.Join(s.agents, "agent-aarch64"), []byte("0123456789"), 0o600))
	for _, name := range []string{"aarch64", "arm64"} {
		whole, content := get(t, path+name)
		require.Equal(t, http.StatusOK, whole.StatusCode)
		assert.Equal(t, "0123456789", string(content))
		assert.Equal(t, `"84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"`, whole.Header.Get("ETag"))
	}
	part, content := get(t, path+"aarch64", "Range", "bytes=2-4")
	assert.Equal(t, http.StatusPartialContent, part.StatusCode)
	assert.Equal(t, "234", string(content))
	same, _ := get(t, path+"aarch64", "If-None-Match", `"84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"`)
	assert.Equal(t, http.StatusNotModified, same.StatusCode)

	// That of this machine's own architecture may have the name that it is built with.
	own := path + hardware.Architecture(runtime.GOARCH)
	missing, _ = get(t, own)
	assert.Equal(t, http.StatusNotFound, missing.StatusCode)
	require.NoError(t, os.WriteFile(filepath.Join(s.agents, "agent"), []byte("own"), 0o600))
	_, content = get(t, own)
	assert.Equal(t, "own", string(content))
	s.offer("named")
	_, content = get(t, own)
	assert.Equal(t, "named", string(content))
}

func TestTheNetworkThatIsStatedForAMachineIsInstalledThere(t *testing.T) {
	listener, address := listen(t)
	s := startSite(t, listener, address, http.DefaultClient, imagetest.List(t))
	var statements []any
	for _, mac := range []string{"52:54:00:00:00:AA", "52:54:00:00:00:BB"} {
		statements = append(statements, map[string]any{
			"network_yaml": "interfaces:\n- {name: eth0, type: ethernet}\n- {name: b, type: bond, link-aggregation: {mode: active-backup, options: {primary: eth0}, port: [eth0]}," +
				" ipv4: {enabled: true, address: [{ip: 192.0.2." + strconv.Itoa(len(statements)+1) + ", prefix-length: 24}]}}\n- {name: br0, type: linux-bridge}\n",
			"mac_interface_map": []any{map[string]any{"mac_address": mac, "logical_nic_name": "eth0"}},
		})
	}
	statements = append(statements, map[string]any{
		"network_yaml": "interfaces: 7", "mac_interface_map": []any{map[string]any{"mac_address": "52:54:00:00:00:cc", "logical_nic_name": "eth0"}},
	})
	config, err := json.Marshal(statements)
	require.NoError(t, err)
	_, image := s.infraEnv(`,"static_network_config":` + string(config))
	ignition := s.ignition(image)
	const profiles = "/etc/NetworkManager/system-connections"
	// The machine has a card that borrows the address of another machine's.
	machine := func(mac string) *booted {
		b := boot(t, ignition)
		b.write("/sys/class/net/lo/address", []byte("00:00:00:00:00:00\n"), 0o600)
		b.write("/sys/class/net/virtual/address", []byte("52:54:00:00:00:aa\n"), 0o600)
		b.write("/sys/class/net/enp1s0/address", []byte(mac+"\n"), 0o600)
		b.write("/sys/class/net/enp1s0/device", nil, 0o600)
		require.NoError(t, <-b.run("muster-network.service", "ExecStart"), b.printed.String())
		return b
	}
	b := machine("52:54:00:00:00:bb")
	b.write("/usr/local/bin/agent", nil, 0o755)
	b.verify()
	assert.Contains(t, b.printed.String(), "not understood and left out: br0 (linux-bridge)")
	for name, holds := range map[string]string{"eth0": "mac-address=52:54:00:00:00:BB\n", "b": "primary=enp1s0\n"} {
		path := b.at(profiles + "/" + name + ".nmconnection")
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Contains(t, string(content), holds)
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "NetworkManager takes no others")
		if name == "b" {
			assert.Contains(t, string(content), "address1=192.0.2.2/24\n")
		}
	}

	b = machine("52:54:00:00:00:cc")
	assert.Contains(t, b.printed.String(), "the stated network cannot be used")
	entries, err := os.ReadDir(b.at(profiles))
	require.NoError(t, err)
	assert.Empty(t, entries)
	b = machine("52:54:00:00:00:01")
	assert.Contains(t, b.printed.String(), "no network is stated for this machine")
	assert.NoDirExists(t, b.at(profiles))
}

// Ignition itself reads what is rendered, and merges what the user overrides as it would in the machine.
func TestIgnitionTakesWhatIsRendered(t *testing.T) {
	listener, address := listen(t)
	s := startSite(t, listener, address, http.DefaultClient, imagetest.List(t))
	const network = `,"static_network_config":[{"network_yaml":"interfaces: [{name: eth0, type: ethernet}]","mac_interface_map":[{"mac_address":"52:54:00:00:00:aa","logical_nic_name":"eth0"}]}]`
	for name, c := range map[string]struct {
		override string
		check    func(t *testing.T, agent, before types.Unit)
	}{
		"no override": {"", func(t *testing.T, agent, _ types.Unit) { assert.True(t, *agent.Enabled) }},
		"a drop-in": {`{"name":"agent.service","dropins":[{"name":"10-proxy.conf","contents":"[Service]\nEnvironment=A=b\n"}]}`, func(t *testing.T, agent, before types.Unit) {
			assert.Equal(t, before.Contents, agent.Contents)
			assert.Len(t, agent.Dropins, 1)
			assert.True(t, *agent.Enabled)
		}},
		"a unit of the user's": {`{"name":"agent.service","contents":"[Service]\nExecStart=/usr/bin/true\n"}`, func(t *testing.T, agent, _ types.Unit) {
			assert.Equal(t, "[Service]\nExecStart=/usr/bin/true\n", *agent.Contents)
		}},
		"no agent": {`{"name":"agent.service","enabled":false}`, func(t *testing.T, agent, _ types.Unit) { assert.False(t, *agent.Enabled) }},
		"another":  {`{"name":"mine.service","enabled":true,"contents":"[Service]\nExecStart=/usr/bin/true\n"}`, func(t *testing.T, agent, before types.Unit) { assert.Equal(t, before, agent) }},
	} {
		t.Run(name, func(t *testing.T) {
			override := ""
			if c.override != "" {
				override = `,"ignition_config_override":` + strconv.Quote(`{"ignition":{"version":"3.1.0"},"systemd":{"units":[`+c.override+`]}}`)
			}
			_, image := s.infraEnv(network + `,"ssh_authorized_key":"ssh-ed25519 AAAA\r\n\r\nssh-ed25519 BBBB\r\n"` + override)
			config, report, err := ignitionv3.Parse(s.ignition(image))
			require.NoError(t, err, report.String())
			assert.Empty(t, report.Entries)
			require.Len(t, config.Passwd.Users, 1)
			assert.Equal(t, []types.SSHAuthorizedKey{"ssh-ed25519 AAAA", "ssh-ed25519 BBBB"}, config.Passwd.Users[0].SSHAuthorizedKeys)
			merged := config
			for _, source := range config.Ignition.Config.Merge {
				over, report, err := ignitionv3.Parse(carried(t, *source.Source))
				require.NoError(t, err, report.String())
				merged = ignitionv3.Merge(merged, over)
			}
			agent := func(c types.Config) types.Unit {
				at := slices.IndexFunc(c.Systemd.Units, func(u types.Unit) bool { return u.Name == "agent.service" })
				require.GreaterOrEqual(t, at, 0)
				return c.Systemd.Units[at]
			}
			c.check(t, agent(merged), agent(config))
		})
	}
}
