// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package boot_test boots real machines, emulated by QEMU, from discovery images that a real service serves.
package boot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/app"
	"github.com/muster-io/muster/agent-service/internal/image"
)

const (
	liveImage = "../../bin/live/live.iso"
	rest      = "/api/assisted-install/v2"
	// patience is generous: the processor is emulated, and the machine that does it may be busy.
	patience = 4 * time.Minute
)

// need ends the test where a real part is missing: skipped, or failed in CI.
func need(t *testing.T, there bool, sentence string) {
	t.Helper()
	if there {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(sentence)
	}
	t.Skip(sentence)
}

// world is a service with our live image.
type world struct {
	// inside is how machines reach the service, outside how the test does.
	inside, outside string
}

func newWorld(t *testing.T) world {
	t.Helper()
	if testing.Short() {
		t.Skip("machines are booted, which takes a while")
	}
	_, err := exec.LookPath("qemu-system-x86_64")
	need(t, err == nil, "there is no qemu-system-x86_64 (Debian: qemu-system-x86) to boot machines with")
	live, err := os.ReadFile(liveImage)
	need(t, err == nil, "there is no live image to boot: make live-image builds it")

	dir := t.TempDir()
	sum := sha256.Sum256(live)
	versions, err := json.Marshal([]image.Version{{Name: "live", Architecture: "x86_64", URL: liveImage, SHA256: hex.EncodeToString(sum[:])}})
	require.NoError(t, err)
	list := filepath.Join(dir, "live.json")
	require.NoError(t, os.WriteFile(list, versions, 0o600))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	w := world{inside: "http://10.0.2.2:" + port, outside: "http://127.0.0.1:" + port}
	o, err := app.ParseOptions([]string{
		"--database=" + filepath.Join(dir, "a.db"), "--token-key=" + filepath.Join(dir, "a.key"), "--metrics-bind-address=0", "--base-url=" + w.inside,
		"--live-images=" + list, "--live-image-cache=" + filepath.Join(dir, "live"),
	})
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

// call asks the service and decodes its answer.
func (w world) call(t *testing.T, method, path, body string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.outside+rest+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Less(t, response.StatusCode, 300, "%s %s: %s", method, path, answer)
	require.NoError(t, json.Unmarshal(answer, into), "%s", answer)
}

// download saves what is at an address as machines see it.
func (w world) download(t *testing.T, address string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "downloaded")
	file, err := os.Create(path)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(address, w.inside, w.outside, 1), http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
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
	ID        string `json:"id"`
	Status    string `json:"status"`
	ClusterID string `json:"cluster_id"`
	Inventory string `json:"inventory"`
}

func (w world) infraEnv(t *testing.T) infraEnv {
	t.Helper()
	var env infraEnv
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.outside+"/readyz", http.NoBody)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, 10*time.Millisecond)
	w.call(t, http.MethodPost, "/infra-envs", `{"name":"rack","pull_secret":"{\"auths\":{}}"}`, &env)
	require.NotEmpty(t, env.DownloadURL)
	return env
}

// power starts a machine with a blank disk; it is switched off when the test ends.
func power(t *testing.T, arguments ...string) *bytes.Buffer {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk.img")
	file, err := os.Create(disk)
	require.NoError(t, err)
	require.NoError(t, errors.Join(file.Truncate(4<<30), file.Close()))
	ctx, off := context.WithCancel(context.Background())
	console := &bytes.Buffer{}
	machine := exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-machine", "pc,accel=tcg", "-m", "1024", "-display", "none", "-serial", "stdio", "-monitor", "none", "-nic", "user,model=virtio-net-pci",
		"-drive", "file=" + disk + ",format=raw,if=virtio", "-uuid", "5f1c0e5e-0000-4000-8000-0123456789ab",
	}, arguments...)...)
	machine.Stdout, machine.Stderr = console, console
	require.NoError(t, machine.Start())
	t.Cleanup(func() {
		off()
		_ = machine.Wait()
		if t.Failed() {
			t.Log(console.String())
		}
	})
	return console
}

// appears waits until the machine registered and told what it is made of.
func (w world) appears(t *testing.T, env infraEnv) host {
	t.Helper()
	var found host
	require.Eventually(t, func() bool {
		var hosts []host
		w.call(t, http.MethodGet, "/infra-envs/"+env.ID+"/hosts", "", &hosts)
		if len(hosts) != 1 {
			return false
		}
		w.call(t, http.MethodGet, "/infra-envs/"+env.ID+"/hosts/"+hosts[0].ID, "", &found)
		return found.Inventory != ""
	}, patience, 200*time.Millisecond, "no machine registered")
	return found
}

func TestAMachineBootsTheDownloadedISOAndIsBound(t *testing.T) {
	w := newWorld(t)
	env := w.infraEnv(t)
	assert.LessOrEqual(t, len(env.DownloadURL), 200)
	assert.True(t, strings.HasSuffix(env.DownloadURL, ".iso"), env.DownloadURL)
	power(t, "-cdrom", w.download(t, env.DownloadURL), "-boot", "d")
	found := w.appears(t, env)
	assert.Contains(t, found.Status, "-unbound")
	var inventory struct {
		Boot struct {
			CurrentBootMode string `json:"current_boot_mode"`
		}
		Memory struct {
			PhysicalBytes int64 `json:"physical_bytes"`
		}
		Disks []struct {
			SizeBytes int64 `json:"size_bytes"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(found.Inventory), &inventory))
	assert.Equal(t, "bios", inventory.Boot.CurrentBootMode)
	assert.Positive(t, inventory.Memory.PhysicalBytes)
	require.NotEmpty(t, inventory.Disks)

	var cluster struct {
		ID string `json:"id"`
	}
	w.call(t, http.MethodPost, "/clusters", `{"name":"c","openshift_version":"4.18","pull_secret":"{\"auths\":{}}"}`, &cluster)
	path := "/infra-envs/" + env.ID + "/hosts/" + found.ID
	w.call(t, http.MethodPost, path+"/actions/bind", fmt.Sprintf(`{"cluster_id":%q}`, cluster.ID), &found)
	assert.Equal(t, cluster.ID, found.ClusterID)
	w.call(t, http.MethodGet, path, "", &found)
	assert.NotEmpty(t, found.Inventory, "binding keeps what is known of the machine")
}

func TestAMachineBootsKernelAndInitrd(t *testing.T) {
	w := newWorld(t)
	env := w.infraEnv(t)
	key := strings.TrimSuffix(env.DownloadURL, "/discovery.iso")
	kernel := w.download(t, w.inside+"/boot-artifacts/kernel?version=live&arch=x86_64")
	initrd := w.download(t, key+"/pxe-initrd")
	firmware := "/usr/share/ovmf/OVMF.fd"
	_, err := os.Stat(firmware)
	for mode, arguments := range map[string][]string{"bios": nil, "uefi": {"-bios", firmware}} {
		t.Run(mode, func(t *testing.T) {
			need(t, mode == "bios" || err == nil, "there is no "+firmware+" (Debian: ovmf) to boot by UEFI")
			env := env
			if mode == "uefi" {
				env = w.infraEnv(t)
				initrd = w.download(t, strings.TrimSuffix(env.DownloadURL, "/discovery.iso")+"/pxe-initrd")
			}
			power(t, append(arguments, "-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0")...)
			assert.Contains(t, w.appears(t, env).Inventory, fmt.Sprintf(`"current_boot_mode":%q`, mode))
		})
	}
}
