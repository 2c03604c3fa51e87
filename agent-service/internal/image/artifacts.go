// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Artifacts are the parts of an image that a running system starts it from.
type Artifacts struct {
	KernelURL    string `json:"kernelURL"`
	KernelSHA256 string `json:"kernelSHA256"`
	InitrdURL    string `json:"initrdURL"`
	InitrdSHA256 string `json:"initrdSHA256"`
	// RootFSURL is empty where the initial RAM disk is the whole system.
	RootFSURL   string `json:"rootfsURL,omitempty"`
	CommandLine string `json:"commandLine"`
}

// sums are checksums of parts of an image, in hexadecimal digits.
type sums struct{ kernel, initrd string }

// checksums reads both parts, once.
func (r *rendered) checksums() (sums, error) {
	kernel, hasKernel := r.base.part(kernelPath)
	initrd, hasInitrd := r.initrd()
	if !hasKernel || !hasInitrd {
		return sums{}, errNoSuchPart
	}
	var found sums
	for _, part := range []struct {
		from io.Reader
		into *string
	}{{kernel, &found.kernel}, {initrd, &found.initrd}} {
		sum := sha256.New()
		if _, err := io.Copy(sum, part.from); err != nil {
			return sums{}, fmt.Errorf("reading the live image: %w", err)
		}
		*part.into = hex.EncodeToString(sum.Sum(nil))
	}
	return found, nil
}

// Artifacts of the image of a key.
func (h *Handler) Artifacts(ctx context.Context, key string) (Artifacts, error) {
	image, err := h.rendered(ctx, key)
	if err != nil {
		return Artifacts{}, err
	}
	sums, err := image.sums()
	if err != nil {
		return Artifacts{}, err
	}
	parts := h.parts(key, image)
	return Artifacts{
		KernelURL: parts.kernel, KernelSHA256: sums.kernel, InitrdURL: parts.initrd, InitrdSHA256: sums.initrd, RootFSURL: parts.rootfs, CommandLine: parts.line,
	}, nil
}

// FetchArtifacts reads the artifacts of a key from the handler at a URL.
func FetchArtifacts(ctx context.Context, client *http.Client, at, key string) (Artifacts, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/images/"+url.PathEscape(key)+"/boot-artifacts", http.NoBody)
	if err != nil {
		return Artifacts{}, errors.New("reading the boot artifacts: the address cannot be used")
	}
	response, err := client.Do(request)
	if err != nil {
		return Artifacts{}, errors.New("reading the boot artifacts: there is no answer")
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return Artifacts{}, refused(response, "boot artifacts")
	}
	var found Artifacts
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&found); err != nil {
		return Artifacts{}, fmt.Errorf("reading the boot artifacts: %w", err)
	}
	return found, nil
}
