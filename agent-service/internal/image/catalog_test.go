// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/muster-io/muster/agent-service/internal/image"
)

const patience = 3 * time.Minute

// mirror has a file, and hangs after a part of it while it is told to.
type mirror struct {
	hangs   atomic.Bool
	fetches atomic.Int64
	asked   chan struct{}
	goOn    chan struct{}
	content []byte
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.fetches.Add(1)
	if !m.hangs.Load() {
		_, _ = w.Write(m.content)
		return
	}
	_, _ = w.Write(m.content[:1000])
	w.(http.Flusher).Flush() //nolint:forcetypeassert // that of the test can
	m.asked <- struct{}{}
	select {
	case <-r.Context().Done():
	case <-m.goOn:
		_, _ = w.Write(m.content[1000:])
	}
}

// site serves two live images: "here", and "away" by way of a mirror.
func site(t *testing.T, stall time.Duration) (m *mirror, url string, log *observer.ObservedLogs) {
	t.Helper()
	here, away := liveImage(t, nil), liveImage(t, map[string][]byte{"more": []byte("away")})
	content, err := os.ReadFile(away.URL)
	require.NoError(t, err)
	m = &mirror{asked: make(chan struct{}, 10), goOn: make(chan struct{}), content: content}
	m.hangs.Store(true)
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	here.Name, away.Name, away.URL = "here", "away", strings.Replace(server.URL, "://", "://user:secret@", 1)+"/live.iso?token=secret"
	core, log := observer.New(zap.WarnLevel)
	catalog := &image.Catalog{Directory: t.TempDir(), Versions: []image.Version{here, away}, Stall: stall, Pause: 10 * time.Millisecond, Log: zap.New(core)}
	images := httptest.NewServer(image.New(image.Options{Catalog: catalog, Source: &source{overlay: image.Overlay{Ignition: []byte("{}")}}, URL: "http://images"}))
	t.Cleanup(images.Close)
	return m, images.URL, log
}

func TestAMirrorThatHangsBlocksNoOtherImage(t *testing.T) {
	m, url, log := site(t, 2*time.Second)
	ended := make(chan answer, 1)
	go func() {
		var body strings.Builder
		got, _ := download(t.Context(), &body, url+"/boot-artifacts/kernel?version=away")
		got.Header.Set("Body", body.String())
		ended <- got
	}()
	<-m.asked
	response, _ := fetch(t, url+"/boot-artifacts/kernel?version=here")
	require.Equal(t, http.StatusOK, response.StatusCode)
	response, _ = fetch(t, url+"/images/one/full.iso")
	require.Equal(t, http.StatusOK, response.StatusCode)

	select {
	case got := <-ended:
		require.Equal(t, http.StatusServiceUnavailable, got.StatusCode)
		assert.Equal(t, "the live image away/x86_64 cannot be fetched: its address has sent nothing for 2s; it is tried again\n", got.Header.Get("Body"))
	case <-time.After(patience):
		t.Fatal("a mirror that sends nothing is waited for")
	}
	m.hangs.Store(false)
	require.Eventually(t, func() bool {
		got, err := download(t.Context(), new(count), url+"/boot-artifacts/kernel?version=away")
		return err == nil && got.StatusCode == http.StatusOK
	}, patience, 10*time.Millisecond, "it is tried again")
	require.NotEmpty(t, log.All())
	for _, line := range log.All() {
		assert.Contains(t, line.ContextMap()["error"], "away/x86_64")
		assert.NotContains(t, line.ContextMap()["error"], "secret")
	}
}

func TestAFetchDoesNotEndWithItsFirstCaller(t *testing.T) {
	m, url, _ := site(t, patience)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := download(ctx, new(count), url+"/boot-artifacts/kernel?version=away")
		left <- err
	}()
	<-m.asked
	leave()
	require.Error(t, <-left)
	close(m.goOn)
	response, _ := fetch(t, url+"/boot-artifacts/kernel?version=away")
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.EqualValues(t, 1, m.fetches.Load())
}

func TestFailuresToFetchShowNoAddresses(t *testing.T) {
	version := liveImage(t, nil)
	for _, address := range []string{"http://user:secret@127.0.0.1:1/secret", "http://user:secret@ here/secret", "/secret/live.iso"} {
		version.URL = address
		_, err := (&image.Catalog{Directory: t.TempDir(), Versions: []image.Version{version}}).Base(t.Context(), "", "")
		require.ErrorContains(t, err, "cannot be fetched", address)
		assert.NotContains(t, err.Error(), "secret", address)
	}
}
