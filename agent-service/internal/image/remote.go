// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxOverlay bounds what is read of an answer: an overlay that fits into no live image may still be described.
const maxOverlay = 64 << 20

// NewSourceHandler serves a Source to Remotes:
//
//	/image-source/{key}          its Description
//	/image-source/{key}/overlay  its Overlay
//
// A key opens here what it opens as part of an image's address, and nothing more.
func NewSourceHandler(source Source) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /image-source/{key}", func(w http.ResponseWriter, r *http.Request) {
		described, err := source.Describe(r.Context(), r.PathValue("key"))
		answer(w, described, err)
	})
	mux.HandleFunc("GET /image-source/{key}/overlay", func(w http.ResponseWriter, r *http.Request) {
		described, err := source.Describe(r.Context(), r.PathValue("key"))
		if err != nil {
			refuse(w, err)
			return
		}
		overlay, err := source.Overlay(r.Context(), described)
		answer(w, overlay, err)
	})
	return mux
}

func answer(w http.ResponseWriter, content any, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(content) // who asked may have gone
}

// Remote is the Source that NewSourceHandler serves elsewhere. It has no credentials: keys come with the requests.
type Remote struct {
	// URL is without a slash at the end.
	URL    string
	Client *http.Client
}

// Describe implements Source.
func (r *Remote) Describe(ctx context.Context, key string) (Description, error) {
	d := Description{Key: key}
	err := r.get(ctx, url.PathEscape(key), &d)
	return d, err
}

// Overlay implements Source.
func (r *Remote) Overlay(ctx context.Context, d Description) (Overlay, error) {
	var o Overlay
	err := r.get(ctx, url.PathEscape(d.Key)+"/overlay", &o)
	return o, err
}

// refusal is an answer that another process gave.
type refusal struct {
	status int
	reason string
}

// Error implements error.
func (r *refusal) Error() string { return r.reason }

// StatusCode is that of the answer.
func (r *refusal) StatusCode() int { return r.status }

func (r *Remote) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/image-source/"+path, http.NoBody) //nolint:gosec // the host is configured, the path escaped
	if err != nil {
		return errors.New("reading the overlay: the address cannot be used")
	}
	response, err := r.Client.Do(request) //nolint:gosec // the host is configured, the path escaped
	if err != nil {
		return errors.New("reading the overlay: the service cannot be reached") // the cause would name the key
	}
	defer func() { _ = response.Body.Close() }()
	body := io.LimitReader(response.Body, maxOverlay)
	if response.StatusCode == http.StatusOK {
		if err := json.NewDecoder(body).Decode(into); err != nil {
			return fmt.Errorf("reading the overlay: %w", err)
		}
		return nil
	}
	return refused(response, "overlay")
}

// refused is the error for an answer that is none.
func refused(response *http.Response, what string) error {
	reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if response.StatusCode >= http.StatusBadRequest && response.StatusCode < http.StatusInternalServerError {
		return &refusal{response.StatusCode, strings.TrimSpace(string(reason))}
	}
	return fmt.Errorf("reading the %s: the answer is %s", what, response.Status)
}

// FetchScript reads the iPXE script of a key from the handler at a URL.
func FetchScript(ctx context.Context, client *http.Client, at, key string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/images/"+url.PathEscape(key)+"/ipxe-script", http.NoBody)
	if err != nil {
		return nil, errors.New("reading the script: the address cannot be used")
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, errors.New("reading the script: there is no answer")
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, refused(response, "script")
	}
	return io.ReadAll(io.LimitReader(response.Body, 1<<20))
}

// Try is Try of the handler at a URL. Where that does not answer, nothing is known.
func Try(ctx context.Context, client *http.Client, at, key string) *Obstacle {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/images/"+url.PathEscape(key)+"/discovery.iso", http.NoBody)
	if err != nil {
		return nil
	}
	request.Header.Set("Range", "bytes=0-0")
	response, err := client.Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode < http.StatusBadRequest || response.Header.Get(refusedBy) == "" {
		return nil
	}
	reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	return newObstacle(response.StatusCode, strings.TrimSpace(string(reason)))
}
