// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Version says which live image, where it is and what it must be.
type Version struct {
	// Name is what InfraEnvs call it: osImageVersion.
	Name         string `json:"version"`
	Architecture string `json:"cpuArchitecture"`
	// URL is http, https, or a path of a file.
	URL string `json:"url"`
	// SHA256 is of the file, in hex.
	SHA256 string `json:"sha256"`
}

// String is "name/architecture".
func (v Version) String() string { return v.Name + "/" + v.Architecture }

// Catalog has the live images that are configured. An image is fetched when it is first asked for and kept by its checksum, so that
// the same image is fetched once, and another one at the same address is refused.
type Catalog struct {
	// Directory is where images are kept.
	Directory string
	// Versions are the images; the first of an architecture is its default.
	Versions []Version
	// Client fetches, http.DefaultClient if nil.
	Client *http.Client

	mu   sync.Mutex
	open map[string]*Base
}

// Base opens an image, empty name for the default of the architecture.
func (c *Catalog) Base(ctx context.Context, name, architecture string) (*Base, error) {
	version, err := c.find(name, architecture)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.open[version.SHA256]; b != nil {
		return b, nil
	}
	path := filepath.Join(c.Directory, version.SHA256+".iso")
	if _, err := os.Stat(path); err != nil {
		if err := c.fetch(ctx, version, path); err != nil {
			return nil, fmt.Errorf("fetching the live image %s: %w", version, err)
		}
	}
	b, err := open(version, path)
	if err != nil {
		return nil, err
	}
	if c.open == nil {
		c.open = map[string]*Base{}
	}
	c.open[version.SHA256] = b
	return b, nil
}

func (c *Catalog) find(name, architecture string) (Version, error) {
	if architecture == "" {
		architecture = "x86_64"
	}
	for _, v := range c.Versions {
		if (name == "" || v.Name == name) && v.Architecture == architecture {
			return v, nil
		}
	}
	return Version{}, &UnknownVersionError{Name: name, Architecture: architecture}
}

// UnknownVersionError says that no such live image is configured.
type UnknownVersionError struct{ Name, Architecture string }

// Error implements error.
func (e *UnknownVersionError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("no live image is configured for %s", e.Architecture)
	}
	return fmt.Sprintf("no live image of version %s is configured for %s", e.Name, e.Architecture)
}

func (c *Catalog) fetch(ctx context.Context, version Version, path string) error {
	source, err := c.source(ctx, version.URL)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	if err := os.MkdirAll(c.Directory, 0o750); err != nil {
		return err
	}
	part, err := os.CreateTemp(c.Directory, ".part-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }()
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(part, sum), source)
	if closed := part.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != strings.ToLower(version.SHA256) {
		return fmt.Errorf("its checksum is %s, not %s", got, version.SHA256)
	}
	return os.Rename(part.Name(), path)
}

func (c *Catalog) source(ctx context.Context, url string) (io.ReadCloser, error) {
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return os.Open(strings.TrimPrefix(url, "file://"))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := c.Client
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	return response.Body, nil
}
