// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/imagetest"
)

// over asks with the client that trusts a private authority.
func (p *private) over(t *testing.T, method, url, body string) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, content
}

// serveImages starts a process that serves images with TLS, and returns its address.
func (p *private) serveImages(t *testing.T, service, live string, more ...string) string {
	t.Helper()
	listener, address := listen(t)
	address = strings.Replace(address, "http://", "https://", 1)
	o, err := parseImageOptions(append([]string{
		"--service-url=" + service, "--base-url=" + address, "--live-images=" + live, "--live-image-cache=" + filepath.Join(t.TempDir(), "images"), "--metrics-bind-address=0",
		"--tls-certificate=" + p.certificate, "--tls-key=" + p.key,
	}, more...))
	require.NoError(t, err)
	start(t, func(ctx context.Context) error { return runImagesWith(ctx, o, zap.NewNop(), listener) })
	return address
}

// As the component agent-service-tls sets them up: both processes serve TLS, and that of the images asks the service by the service's authority.
func TestImagesOfAProcessOfTheirOwnAreServedWithTLS(t *testing.T) {
	trust := newPrivate(t)
	listener, service := listen(t)
	service = strings.Replace(service, "http://", "https://", 1)
	live, dir := imagetest.List(t), t.TempDir()
	images := trust.serveImages(t, service, live, "--service-ca-file="+trust.authority)
	o, err := ParseOptions([]string{
		"--database=" + filepath.Join(dir, "a.db"), "--token-key=" + filepath.Join(dir, "a.key"), "--metrics-bind-address=0", "--base-url=" + service, "--image-url=" + images,
		"--ca-file=" + trust.authority, "--tls-certificate=" + trust.certificate, "--tls-key=" + trust.key, "--live-images=" + live,
	})
	require.NoError(t, err)
	start(t, func(ctx context.Context) error { return RunWith(ctx, o, zap.NewNop(), listener) })
	until := func(url string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			code, said := trust.over(t, http.MethodGet, url+"/readyz", "")
			require.Equal(c, http.StatusOK, code, string(said))
		}, patience, 10*time.Millisecond)
	}
	until(service)
	until(images)

	code, said := trust.over(t, http.MethodPost, service+"/api/assisted-install/v2/infra-envs", `{"name":"e","pull_secret":"{\"auths\":{}}"}`)
	require.Equal(t, http.StatusCreated, code, string(said))
	var env struct {
		ID          string `json:"id"`
		DownloadURL string `json:"download_url"`
	}
	require.NoError(t, json.Unmarshal(said, &env))
	require.True(t, strings.HasPrefix(env.DownloadURL, images+"/images/"), env.DownloadURL)
	code, iso := trust.over(t, http.MethodGet, env.DownloadURL, "")
	require.Equal(t, http.StatusOK, code, "%.200s", iso)
	assert.Greater(t, len(iso), 32768)
	code, script := trust.over(t, http.MethodGet, service+"/api/assisted-install/v2/infra-envs/"+env.ID+"/downloads/files?file_name=ipxe-script", "")
	require.Equal(t, http.StatusOK, code, "the service trusts the server of images by --ca-file: %s", script)
	assert.Contains(t, string(script), images)

	stranger := trust.serveImages(t, service, live)
	code, said = trust.over(t, http.MethodGet, strings.Replace(env.DownloadURL, images, stranger, 1), "")
	assert.Equal(t, http.StatusServiceUnavailable, code, "without the authority of the service there is no image: %.200s", said)
}

// As cert-manager renews what is in a Secret, and the kubelet replaces the files of its volume.
func TestARenewedCertificateIsServed(t *testing.T) {
	trust, renewed := newPrivate(t), newPrivate(t)
	listener, service := listen(t)
	service = strings.Replace(service, "http://", "https://", 1)
	dir := t.TempDir()
	o, err := ParseOptions([]string{
		"--database=" + filepath.Join(dir, "a.db"), "--token-key=" + filepath.Join(dir, "a.key"), "--metrics-bind-address=0", "--base-url=" + service,
		"--tls-certificate=" + trust.certificate, "--tls-key=" + trust.key,
	})
	require.NoError(t, err)
	start(t, func(ctx context.Context) error { return RunWith(ctx, o, zap.NewNop(), listener) })
	servedTo := func(client *private) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			code, said := client.over(t, http.MethodGet, service+"/readyz", "")
			require.Equal(c, http.StatusOK, code, string(said))
		}, 10*time.Second, 10*time.Millisecond)
	}
	servedTo(trust)
	replace(t, renewed.certificate, trust.certificate)
	replace(t, renewed.key, trust.key)
	servedTo(renewed)
}

func replace(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o600))
}

func TestReplacedAuthoritiesAreTrusted(t *testing.T) {
	former, renewed := newPrivate(t), newPrivate(t)
	servers := map[*private]string{}
	for _, of := range []*private{former, renewed} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{of.server}}
		server.StartTLS()
		t.Cleanup(server.Close)
		servers[of] = server.URL
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	client := &http.Client{Transport: &trusting{file: file}}
	ask := func(of *private) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, servers[of], http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	require.ErrorIs(t, ask(former), os.ErrNotExist)
	replace(t, former.authority, file)
	require.NoError(t, ask(former))
	require.ErrorContains(t, ask(renewed), "x509")
	replace(t, renewed.authority, file)
	require.NoError(t, ask(renewed))
	require.ErrorContains(t, ask(former), "x509")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, ask(renewed), "a file that is being written changes nothing")
}
