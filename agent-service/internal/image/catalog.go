// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
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

const (
	// stall is how long an address may send nothing, and pause how long an image is not asked for again that could not be had.
	stall = time.Minute
	pause = 10 * time.Second
)

// Catalog has the live images that are configured. An image is fetched when it is first asked for and kept by its checksum, so that
// the same image is fetched once, and another one at the same address is refused. One that cannot be fetched does not block the others.
type Catalog struct {
	// Directory is where images are kept.
	Directory string
	// Versions are the images; the first of an architecture is its default.
	Versions []Version
	// Client fetches, http.DefaultClient if nil.
	Client *http.Client
	// Stall and Pause are those of this package if zero.
	Stall, Pause time.Duration
	// Log receives why images could not be fetched; nil logs nothing.
	Log *zap.Logger

	mu    sync.Mutex
	known map[string]*brought
}

// brought is an image that is there, or on its way.
type brought struct {
	done chan struct{}
	base *Base
	err  error
}

// FetchError says that a live image cannot be had at the moment.
type FetchError struct {
	Version Version
	cause   error
}

// Error implements error. Addresses, which may hold a password, and paths are not in it: any client may ask for an image.
func (e *FetchError) Error() string {
	cause := e.cause
	for failed := (*url.Error)(nil); errors.As(cause, &failed); {
		cause = failed.Err
	}
	for failed := (*fs.PathError)(nil); errors.As(cause, &failed); {
		cause = failed.Err
	}
	return fmt.Sprintf("the live image %s cannot be fetched: %v; it is tried again", e.Version, cause)
}

// Unwrap is the cause.
func (e *FetchError) Unwrap() error { return e.cause }

// Base opens an image, empty name for the default of the architecture. The caller waits for an image that is fetched; the fetch does not end with the caller.
func (c *Catalog) Base(ctx context.Context, name, architecture string) (*Base, error) {
	version, err := c.find(name, architecture)
	if err != nil {
		return nil, err
	}
	b := c.bring(ctx, version)
	select {
	case <-b.done:
		return b.base, b.err
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the live image %s: %w", version, ctx.Err())
	}
}

func (c *Catalog) bring(ctx context.Context, version Version) *brought {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.known[version.SHA256]; b != nil {
		return b
	}
	if c.known == nil {
		c.known = map[string]*brought{}
	}
	b := &brought{done: make(chan struct{})}
	c.known[version.SHA256] = b
	go func() {
		defer close(b.done)
		if b.base, b.err = c.get(context.WithoutCancel(ctx), version); b.err == nil {
			return
		}
		c.warn("did not get a live image", b.err)
		time.AfterFunc(cmp.Or(c.Pause, pause), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.known, version.SHA256)
		})
	}()
	return b
}

func (c *Catalog) warn(message string, err error) {
	if c.Log != nil {
		c.Log.Warn(message, zap.String("error", err.Error()))
	}
}

func (c *Catalog) get(ctx context.Context, version Version) (*Base, error) {
	path := filepath.Join(c.Directory, version.SHA256+".iso")
	if _, err := os.Stat(path); err != nil {
		if err := c.fetch(ctx, version, path); err != nil {
			return nil, &FetchError{version, err}
		}
	}
	return open(version, path)
}

// Check says whether there is such a live image, without fetching it: an UnknownVersionError where there is none.
func (c *Catalog) Check(name, architecture string) error {
	_, err := c.find(name, architecture)
	return err
}

// Chosen is the version of the live image that stands for a version, which is empty for the default; empty where there is none.
func (c *Catalog) Chosen(name, architecture string) string {
	version, err := c.find(name, architecture)
	if err != nil {
		return ""
	}
	return version.Name
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
	unknown := &UnknownVersionError{Name: name, Architecture: architecture}
	for _, v := range c.Versions {
		if v.Architecture == architecture {
			unknown.Known = append(unknown.Known, v.Name)
		}
	}
	return Version{}, unknown
}

// UnknownVersionError says that no such live image is configured.
type UnknownVersionError struct {
	Name, Architecture string
	// Known are the versions that there are for the architecture.
	Known []string
}

// Error implements error.
func (e *UnknownVersionError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("no live image is configured for %s: choose another architecture, or add one to the list of live images", e.Architecture)
	}
	return fmt.Sprintf("no live image of version %s is configured for %s: choose %s, or add it to the list of live images", e.Name, e.Architecture, strings.Join(e.Known, ", "))
}

func (c *Catalog) fetch(ctx context.Context, version Version, path string) error {
	patience := cmp.Or(c.Stall, stall)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(patience, func() { cancel(fmt.Errorf("its address has sent nothing for %s", patience)) })
	defer alive.Stop()
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
	_, err = io.Copy(io.MultiWriter(part, sum), watchedReader{source, func() { alive.Reset(patience) }})
	if closed := part.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return cause(ctx, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != strings.ToLower(version.SHA256) {
		return fmt.Errorf("its checksum is %s, not %s", got, version.SHA256)
	}
	return os.Rename(part.Name(), path)
}

func (c *Catalog) source(ctx context.Context, address string) (io.ReadCloser, error) {
	if !strings.HasPrefix(address, "http://") && !strings.HasPrefix(address, "https://") {
		return os.Open(strings.TrimPrefix(address, "file://"))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := c.Client
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, cause(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	return response.Body, nil
}

// cause is why a context ended, where an error came of that.
func cause(ctx context.Context, err error) error {
	if ended := context.Cause(ctx); ended != nil {
		return ended
	}
	return err
}

// watchedReader calls back with each piece that is read.
type watchedReader struct {
	io.Reader
	tell func()
}

// Read implements io.Reader.
func (r watchedReader) Read(into []byte) (int, error) {
	n, err := r.Reader.Read(into)
	if n > 0 {
		r.tell()
	}
	return n, err
}
