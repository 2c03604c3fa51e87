// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fetch downloads released programs of a control plane and checks each against the SHA-256 sum that is published
// beside it.
package fetch

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	// maxSums bounds a file of sums, maxProgram a program.
	maxSums    = 1 << 20
	maxProgram = 1 << 30
)

// Releases says which programs are fetched from where.
type Releases struct {
	// Kubernetes and Etcd are the versions, as v1.37.2.
	Kubernetes, Etcd string
	// KubernetesURL and EtcdURL are the roots of the releases: https://dl.k8s.io/release, or a mirror of it.
	KubernetesURL, EtcdURL string
	// Arch is the architecture, as Go names it. Programs of a control plane are released for Linux only.
	Arch string
	// Idle is how long a server may send nothing before the download fails.
	Idle time.Duration
	// Report is called with the bytes of a program that have arrived so far; nil for no report.
	Report func(name string, bytes int64)
}

// SumError says that a download is not what was published.
type SumError struct {
	// URL is what was downloaded.
	URL string
	// Want and Got are SHA-256 sums in hexadecimal.
	Want, Got string
}

func (e *SumError) Error() string {
	return fmt.Sprintf("%s has the SHA-256 sum %s, and %s is published: it was not installed", e.URL, e.Got, e.Want)
}

// Into downloads a program, checks it, and writes it to the directory. A file is there only if it is whole and right.
func (r Releases) Into(ctx context.Context, dir, name string) error {
	if name == "etcd" {
		return r.etcd(ctx, dir)
	}
	address := fmt.Sprintf("%s/%s/bin/linux/%s/%s", r.KubernetesURL, r.Kubernetes, r.Arch, name)
	sum, err := r.small(ctx, address+".sha256")
	if err != nil {
		return err
	}
	part, err := r.download(ctx, address, strings.TrimSpace(sum), dir, name)
	if err != nil {
		return err
	}
	return install(part, filepath.Join(dir, name))
}

// etcd is released as an archive, with one file of sums for all archives.
func (r Releases) etcd(ctx context.Context, dir string) error {
	archive := fmt.Sprintf("etcd-%s-linux-%s.tar.gz", r.Etcd, r.Arch)
	sums, err := r.small(ctx, r.EtcdURL+"/"+r.Etcd+"/SHA256SUMS")
	if err != nil {
		return err
	}
	sum := ""
	for line := range strings.Lines(sums) {
		if fields := strings.Fields(line); len(fields) == 2 && strings.TrimPrefix(fields[1], "*") == archive {
			sum = fields[0]
		}
	}
	if sum == "" {
		return fmt.Errorf("%s/%s/SHA256SUMS has no sum of %s", r.EtcdURL, r.Etcd, archive)
	}
	part, err := r.download(ctx, r.EtcdURL+"/"+r.Etcd+"/"+archive, sum, dir, "etcd")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part) }()
	return unpack(part, "etcd", dir)
}

// small returns the text of a small file.
func (r Releases) small(ctx context.Context, address string) (string, error) {
	var text strings.Builder
	if err := r.get(ctx, address, func(body io.Reader) error {
		_, err := io.Copy(&text, io.LimitReader(body, maxSums))
		return err
	}); err != nil {
		return "", err
	}
	return text.String(), nil
}

// download writes what the address has to a file in dir, if it has the sum, and returns its path.
func (r Releases) download(ctx context.Context, address, sum, dir, name string) (part string, err error) {
	file, err := os.CreateTemp(dir, "."+name+".part-")
	if err != nil {
		return "", fmt.Errorf("creating a file for %s: %w", name, err)
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	hash := sha256.New()
	var arrived int64
	if err := r.get(ctx, address, func(body io.Reader) error {
		_, err := io.Copy(io.MultiWriter(file, hash, counter(func(n int) {
			arrived += int64(n)
			if r.Report != nil {
				r.Report(name, arrived)
			}
		})), io.LimitReader(body, maxProgram))
		return err
	}); err != nil {
		return "", err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); !strings.EqualFold(got, sum) {
		return "", &SumError{URL: address, Want: sum, Got: got}
	}
	return file.Name(), nil
}

type counter func(n int)

func (c counter) Write(content []byte) (int, error) {
	c(len(content))
	return len(content), nil
}

// get reads the body of an address. It fails when nothing arrives for the idle time.
func (r Releases) get(ctx context.Context, address string, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(r.Idle, func() { cancel(fmt.Errorf("the server sent nothing for %s", r.Idle)) })
	defer idle.Stop()
	wrap := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("downloading %s: %w", address, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return wrap(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return wrap(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return wrap(errors.New(response.Status))
	}
	if err := read(io.TeeReader(response.Body, counter(func(int) { idle.Reset(r.Idle) }))); err != nil {
		return wrap(err)
	}
	return nil
}

// unpack installs the program from a gzipped tar archive.
func unpack(archive, name, dir string) (err error) {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", name, err)
	}
	for content := tar.NewReader(zipped); ; {
		header, err := content.Next()
		if err != nil {
			return fmt.Errorf("looking for %s in its archive: %w", name, err)
		}
		if header.Typeflag == tar.TypeReg && path.Base(header.Name) == name {
			part := filepath.Join(dir, "."+name+".unpacked")
			if err := write(part, io.LimitReader(content, maxProgram)); err != nil {
				return fmt.Errorf("unpacking %s: %w", name, err)
			}
			return install(part, filepath.Join(dir, name))
		}
	}
}

func write(path string, content io.Reader) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

// install makes a file a program under its name.
func install(part, name string) error {
	if err := os.Chmod(part, 0o755); err != nil { //nolint:gosec // it is a program
		return fmt.Errorf("installing %s: %w", name, err)
	}
	if err := os.Rename(part, name); err != nil {
		return fmt.Errorf("installing %s: %w", name, err)
	}
	return nil
}
