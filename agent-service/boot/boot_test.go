// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package boot_test boots real machines, emulated by QEMU, from discovery images that a real service serves.
package boot_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/app"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/image"
	"github.com/muster-io/muster/agent-service/internal/validate"

	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/pki"
)

const (
	liveImage   = "../../bin/live/live.iso"
	systemImage = "../../bin/live/os.img.zst"
	rest        = "/api/assisted-install/v2"
)

// scheme is how machines and the test reach a service. That of https has a private authority, which the service gives to its hosts.
type scheme string

// secure makes an authority and a certificate of it for the service: the arguments by which it uses them.
func (s scheme) secure(t *testing.T, dir string) []string {
	t.Helper()
	if s == "http" {
		return nil
	}
	valid := pki.Period{From: time.Now().Add(-24 * time.Hour), Until: time.Now().Add(24 * time.Hour)}
	authority, err := pki.NewAuthority("private", valid)
	require.NoError(t, err)
	server, err := authority.Issue(pki.Server("10.0.2.2", "127.0.0.1"), valid)
	require.NoError(t, err)
	ca, _, err := authority.Encode()
	require.NoError(t, err)
	certificate, key, err := server.Encode()
	require.NoError(t, err)
	var arguments []string
	for flag, text := range map[string][]byte{"tls-certificate": certificate, "tls-key": key, "ca-file": ca} {
		path := filepath.Join(dir, flag)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		arguments = append(arguments, "--"+flag+"="+path)
	}
	return arguments
}

// outsider asks as the test does, which trusts any certificate: what the machines trust is what counts.
var outsider = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// testEnv is a service with our live image and a system to install.
type testEnv struct {
	// inside is how machines reach the service, outside how the test does.
	inside, outside string
	// machine is there once it was switched on.
	machine *machinetest.Machine
}

func newTestEnv(t *testing.T, by scheme, more ...string) *testEnv {
	t.Helper()
	machinetest.Need(t)
	live, err := os.ReadFile(liveImage)
	needtest.Part(t, err == nil, "there is no live image to boot: make live-image builds it")
	iso, err := filepath.Abs(liveImage)
	require.NoError(t, err)

	dir := t.TempDir()
	list := filepath.Join(dir, "live.json")
	write(t, list, []image.Version{{Name: "live", Architecture: "x86_64", URL: iso, SHA256: checksum(live)}})
	systems := filepath.Join(dir, "systems.json")
	write(t, systems, serveSystem(t))
	minimums := filepath.Join(dir, "minimums.json")
	small := validate.Minimum{CPUs: 1, MemoryGiB: 1, DiskGB: 4}
	write(t, minimums, validate.Minimums{"auto-assign": small, "master": small})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	w := &testEnv{inside: string(by) + "://" + machinetest.Gateway + ":" + port, outside: string(by) + "://127.0.0.1:" + port}
	o, err := app.ParseOptions(append([]string{
		"--database=" + filepath.Join(dir, "a.db"), "--token-key=" + filepath.Join(dir, "a.key"), "--metrics-bind-address=0", "--base-url=" + w.inside,
		"--live-images=" + list, "--live-image-cache=" + filepath.Join(dir, "live"), "--os-images=" + systems, "--host-minimums=" + minimums,
	}, slices.Concat(by.secure(t, dir), more)...))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.RunWith(ctx, o, zap.NewNop(), listener) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return w
}

func write(t *testing.T, path string, value any) {
	t.Helper()
	content, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

func checksum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// serveSystem serves the small system as it is built, as version zst, and packed in another way, as version gz.
func serveSystem(t *testing.T) []agentproto.OSImage {
	t.Helper()
	built, err := os.ReadFile(systemImage)
	needtest.Part(t, err == nil, "there is no system to install: make live-image builds it")
	from, err := zstd.NewReader(bytes.NewReader(built))
	require.NoError(t, err)
	defer from.Close()
	var packed bytes.Buffer
	to, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	require.NoError(t, err)
	_, err = io.Copy(to, from)
	require.NoError(t, errors.Join(err, to.Close()))
	files := map[string][]byte{"/os.img.zst": built, "/os.img.gz": packed.Bytes()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(files[r.URL.Path]))
	}))
	t.Cleanup(server.Close)
	var images []agentproto.OSImage
	for path, content := range files {
		images = append(images, agentproto.OSImage{
			Version: strings.TrimPrefix(path, "/os.img."), CPUArchitecture: "x86_64", SHA256: checksum(content),
			URL: strings.Replace(server.URL, "127.0.0.1", machinetest.Gateway, 1) + path,
		})
	}
	return images
}

// call asks the service and decodes its answer.
func (w *testEnv) call(t *testing.T, method, path, body string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.outside+rest+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := outsider.Do(request)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Less(t, response.StatusCode, 300, "%s %s: %s", method, path, answer)
	require.NoError(t, json.Unmarshal(answer, into), "%s", answer)
}

// download saves what is at an address as machines see it.
func (w *testEnv) download(t *testing.T, address string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "downloaded")
	file, err := os.Create(path)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(address, w.inside, w.outside, 1), http.NoBody)
	require.NoError(t, err)
	response, err := outsider.Do(request)
	require.NoError(t, err)
	_, err = io.Copy(file, response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close(), file.Close()))
	require.Equal(t, http.StatusOK, response.StatusCode, address)
	return path
}

type infraEnv struct {
	ID          string `json:"id"`
	DownloadURL string `json:"download_url"`
}

type host struct {
	ID          string `json:"id"`
	Status      string `json:"status"`
	StatusInfo  string `json:"status_info"`
	ClusterID   string `json:"cluster_id"`
	Inventory   string `json:"inventory"`
	Validations string `json:"validations_info"`
}

type cluster struct {
	ID         string `json:"id"`
	Status     string `json:"status"`
	StatusInfo string `json:"status_info"`
}

// infraEnv makes an InfraEnv with the given networks, a JSON list of static_network_config.
func (w *testEnv) infraEnv(t *testing.T, networks string) infraEnv {
	t.Helper()
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.outside+"/readyz", http.NoBody)
		if err != nil {
			return false
		}
		response, err := outsider.Do(request)
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, machinetest.Patience, 10*time.Millisecond)
	var env infraEnv
	w.call(t, http.MethodPost, "/infra-envs", `{"name":"rack","pull_secret":"{\"auths\":{}}","static_network_config":`+networks+`}`, &env)
	require.NotEmpty(t, env.DownloadURL)
	return env
}

// power switches on a machine with a blank disk, which it boots from as soon as it can.
func (w *testEnv) power(t *testing.T, hardware machinetest.Hardware) {
	t.Helper()
	hardware.Disk = machinetest.BlankDisk(t)
	w.machine = machinetest.PowerOn(t, hardware)
}

// until asks for an object until it is as wanted.
func until[T any](t *testing.T, w *testEnv, path string, wanted func(T) bool, says string) T {
	t.Helper()
	var found T
	w.machine.Until(t, path, func() error {
		var now T
		w.call(t, http.MethodGet, path, "", &now)
		if found = now; wanted(found) {
			return nil
		}
		return fmt.Errorf("%s: %+v", says, found)
	})
	return found
}

// appears waits until the machine registered and told what it is made of.
func (w *testEnv) appears(t *testing.T, env infraEnv) host {
	t.Helper()
	hosts := until(t, w, "/infra-envs/"+env.ID+"/hosts", func(hosts []host) bool { return len(hosts) == 1 }, "no machine registered")
	return until(t, w, env.host(hosts[0]), func(h host) bool { return h.Inventory != "" }, "the machine did not tell what it is made of")
}

func (e infraEnv) host(h host) string { return "/infra-envs/" + e.ID + "/hosts/" + h.ID }

// A machine boots the downloaded image and registers, is bound, writes its disk, restarts from it and reports that it is installed.
func TestAMachineBootsTheDownloadedISOAndIsInstalled(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t, "https")
	env := w.infraEnv(t, "[]")
	assert.LessOrEqual(t, len(env.DownloadURL), 200)
	assert.True(t, strings.HasSuffix(env.DownloadURL, ".iso"), env.DownloadURL)
	w.power(t, machinetest.Hardware{ISO: w.download(t, env.DownloadURL)})
	found := w.appears(t, env)
	assert.Contains(t, found.Status, "-unbound")
	assert.Equal(t, machinetest.Hostname, seen(t, found.Inventory, "bios").Hostname, "as DHCP says")

	var c cluster
	w.call(t, http.MethodPost, "/clusters",
		`{"name":"c","openshift_version":"zst","pull_secret":"{\"auths\":{}}","control_plane_count":1,"machine_networks":[{"cidr":"10.0.2.0/24"}]}`, &c)
	// An emulated machine has as much time for its disk as the one that emulates it leaves.
	w.call(t, http.MethodPut, "/clusters/"+c.ID+"/ignored-validations", `{"host-validation-ids":"[\"sufficient-installation-disk-speed\"]","cluster-validation-ids":"[]"}`, &struct{}{})
	path := env.host(found)
	w.call(t, http.MethodPost, path+"/actions/bind", fmt.Sprintf(`{"cluster_id":%q}`, c.ID), &found)
	assert.Equal(t, c.ID, found.ClusterID)
	found = until(t, w, path, func(h host) bool { return h.Status == "known" }, "the host did not become ready")
	assert.NotEmpty(t, found.Inventory, "binding keeps what is known of the machine")

	until(t, w, "/clusters/"+c.ID, func(c cluster) bool { return c.Status == "ready" }, "the cluster did not become ready")
	w.call(t, http.MethodPost, "/clusters/"+c.ID+"/actions/install", "", &c)
	until(t, w, "/clusters/"+c.ID, func(c cluster) bool { return c.Status == "installed" || c.Status == "error" }, "the installation did not end")
	found = until(t, w, path, func(h host) bool { return h.Status == "installed" }, "the host is not installed")
	w.call(t, http.MethodGet, "/clusters/"+c.ID, "", &c)
	assert.Equal(t, "installed", c.Status, c.StatusInfo)
	assert.Contains(t, w.machine.String(), "muster.installed", "the machine started from its disk")
	requireInstallationEvents(t, w, found.ID, c.ID)
}

// seen checks an inventory.
func seen(t *testing.T, of, mode string) hardware.Inventory {
	t.Helper()
	var inventory hardware.Inventory
	require.NoError(t, json.Unmarshal([]byte(of), &inventory))
	assert.Equal(t, mode, inventory.Boot.CurrentBootMode)
	assert.Positive(t, inventory.Memory.PhysicalBytes)
	require.NotEmpty(t, inventory.Disks)
	return inventory
}

// requireInstallationEvents checks that the events of the cluster tell the installation: written with progress, restarted, and reported by the installed system.
func requireInstallationEvents(t *testing.T, w *testEnv, hostID, clusterID string) {
	t.Helper()
	var events []struct {
		Message string `json:"message"`
	}
	w.call(t, http.MethodGet, "/events?cluster_id="+clusterID+"&host_id="+hostID, "", &events)
	var all strings.Builder
	for _, e := range events {
		all.WriteString(e.Message + "\n")
	}
	for _, stage := range []string{"Writing image to disk", "Rebooting", "Configuring", "Joined", "Done"} {
		assert.Contains(t, all.String(), "reached installation stage "+stage)
	}
}

func TestAMachineBootsKernelAndInitrdWithItsStaticNetwork(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t, "https")
	env := w.infraEnv(t, `[{"mac_interface_map":[{"mac_address":"`+machinetest.MAC+`","logical_nic_name":"nic0"}],"network_yaml":"`+strings.ReplaceAll(stated, "\n", "\\n")+`"}]`)
	kernel := w.download(t, w.inside+"/boot-artifacts/kernel?version=live&arch=x86_64")
	initrd := w.download(t, strings.TrimSuffix(env.DownloadURL, "/discovery.iso")+"/pxe-initrd")
	w.power(t, machinetest.Hardware{More: []string{
		"-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 coreos.live.rootfs_url=" + w.inside + "/boot-artifacts/live/x86_64/rootfs",
	}})
	inventory := seen(t, w.appears(t, env).Inventory, "bios")
	found := map[string][]string{}
	for _, i := range inventory.Interfaces {
		found[i.Name] = append(i.IPV4Addresses, i.IPV6Addresses...)
	}
	assert.Contains(t, found["eth0"], "10.0.2.77/24")
	assert.Contains(t, found["eth0"], "fd00:77::7/64")
	assert.NotContains(t, fmt.Sprint(found), "10.0.2.15", "which DHCP would have given")
	assert.Contains(t, found["nic0.12"], "192.0.2.7/25")
	assert.True(t, slices.ContainsFunc(inventory.Routes, func(r hardware.Route) bool { return r.Gateway == "10.0.2.2" && r.Interface == "eth0" }), "%v", inventory.Routes)
}

// stated is a static network for the card nic0.
const stated = `interfaces:
- {name: nic0, type: ethernet, state: up, ipv4: {enabled: true, address: [{ip: 10.0.2.77, prefix-length: 24}]}, ipv6: {enabled: true, address: [{ip: 'fd00:77::7', prefix-length: 64}]}}
- {name: nic0.12, type: vlan, state: up, vlan: {base-iface: nic0, id: 12}, ipv4: {enabled: true, address: [{ip: 192.0.2.7, prefix-length: 25}]}}
routes: {config: [{destination: 0.0.0.0/0, next-hop-address: 10.0.2.2, next-hop-interface: nic0}]}
dns-resolver: {config: {server: [10.0.2.3]}}
`
