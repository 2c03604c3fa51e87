// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/checkout"
)

const (
	isoClients = 200
	isoBytes   = 1 << 30
	isoRange   = 8 << 20
)

// iso is many clients that download one large image in ranges.
func iso(ctx context.Context, r *bench.Run) (err error) {
	dir, err := os.MkdirTemp("", "muster-bench-iso-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	size := int64(r.Scaled(isoBytes))
	list, err := largeImage(dir, size)
	if err != nil {
		return err
	}
	s, err := startSite(ctx, siteConfig{arguments: []string{"-live-images=" + list, "-live-image-cache=" + filepath.Join(dir, "cache")}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var image struct {
		URL string `json:"url"`
	}
	if err := s.call(ctx, http.MethodGet, "/infra-envs/"+s.infraEnv+"/downloads/image-url", nil, &image); err != nil {
		return err
	}
	// The first byte makes the service fetch the image and render what it adds.
	if _, err := s.fetch(ctx, image.URL, 0, 1); err != nil {
		return err
	}
	return s.downloads(ctx, r, image.URL, size)
}

func (s *site) downloads(ctx context.Context, r *bench.Run, url string, size int64) error {
	before, err := s.rss()
	if err != nil {
		return err
	}
	var peak atomic.Int64
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for watch.Err() == nil {
			if now, err := s.rss(); err == nil && int64(now) > peak.Load() {
				peak.Store(int64(now))
			}
			_ = sleepUntil(watch, time.Now().Add(100*time.Millisecond))
		}
	}()
	begin := time.Now()
	var total, ranges atomic.Int64
	errs := make([]error, isoClients)
	var all sync.WaitGroup
	for i := range isoClients {
		all.Go(func() {
			for at := int64(0); at < size && errs[i] == nil; at += isoRange {
				var n int64
				n, errs[i] = s.fetch(ctx, url, at, min(isoRange, size-at))
				total.Add(n)
				ranges.Add(1)
			}
		})
	}
	all.Wait()
	stop()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	renders, err := s.count(ctx, "agent_service_image_renders_total")
	if err != nil {
		return err
	}
	r.Figure("operations", float64(ranges.Load()), "ranges", bench.NoTarget)
	r.Figure("rss_growth_mb", max(0, float64(peak.Load())-before)/1024, "MiB", 100)
	r.Figure("renders", renders, "overlays", 1)
	r.Figure("throughput", float64(total.Load())/(1<<20)/time.Since(begin).Seconds(), "MiB/s", bench.NoTarget)
	r.Asserted("%d clients read %d bytes each, in ranges of %d", isoClients, size, isoRange)
	if total.Load() != isoClients*size {
		return fmt.Errorf("%d bytes were read instead of %d", total.Load(), isoClients*size)
	}
	return nil
}

// fetch reads a range and counts its bytes.
func (s *site) fetch(ctx context.Context, url string, at, n int64) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", at, at+n-1))
	response, err := (&http.Client{Transport: s.client.Transport}).Do(request)
	if err != nil {
		return 0, err
	}
	read, err := io.Copy(io.Discard, response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusPartialContent {
		err = fmt.Errorf("a range was answered with %s", response.Status)
	}
	return read, err
}

// largeImage makes an image of the size out of the live image, and the list that names it.
func largeImage(dir string, size int64) (list string, err error) {
	live, err := checkout.Path("bin", "live", "live.iso")
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(live)
	if err != nil {
		return "", fmt.Errorf("the live image is not there: run 'make live-image' first: %w", err)
	}
	path := filepath.Join(dir, "large.iso")
	if err := errors.Join(os.WriteFile(path, content, 0o600), os.Truncate(path, max(size, int64(len(content))))); err != nil { //nolint:gosec // below a directory of our own
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	named, err := json.Marshal([]map[string]string{{"version": "bench", "cpuArchitecture": "x86_64", "url": path, "sha256": hex.EncodeToString(sum.Sum(nil))}})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "live-images.json")
	return list, os.WriteFile(list, named, 0o600)
}
