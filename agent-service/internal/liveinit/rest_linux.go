// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// rootfsArgument is the argument of the kernel that says where the root file system is, as in CoreOS.
	rootfsArgument = "coreos.live.rootfs_url"
	// maxFile bounds one file of it.
	maxFile = 256 << 20
)

// rest gets what a minimal image leaves out, and does not return before it is there.
func rest() {
	for {
		if _, err := os.Stat(agentPath); err == nil {
			return
		}
		line, err := os.ReadFile("/proc/cmdline")
		if err == nil {
			err = fetch(argument(string(line), rootfsArgument))
		}
		if err != nil {
			say("getting the root file system: %v", err)
			time.Sleep(pause) //nolint:forbidigo // nothing tells when the server can be reached
		}
	}
}

// argument is the value of an argument of the kernel.
func argument(line, name string) string {
	for word := range strings.FieldsSeq(line) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

// fetch unpacks an archive at an address into this system.
func fetch(address string) error {
	if address == "" {
		return errors.New("the kernel's " + rootfsArgument + " does not say where it is")
	}
	client, err := trusting()
	if err != nil {
		return err
	}
	response, err := client.Get(address) //nolint:noctx // lives as long as the machine
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, response.Status)
	}
	plain, err := zstd.NewReader(response.Body, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer plain.Close()
	return unpack(plain, "/")
}

// trusting reaches servers as the agent does: by its proxies, and trusting its authorities.
func trusting() (*http.Client, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, setting := range settings() {
		name, value, _ := strings.Cut(setting, "=")
		switch name {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY":
			if err := os.Setenv(name, value); err != nil {
				return nil, err
			}
		case "AGENT_CA_FILE":
			authorities, err := os.ReadFile(value)
			if err != nil {
				return nil, err
			}
			trust.RootCAs = x509.NewCertPool()
			trust.RootCAs.AppendCertsFromPEM(authorities)
		}
	}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, ResponseHeaderTimeout: time.Minute}}, nil
}

// unpack writes the files of an archive (cpio, newc) below a directory. A file that comes in part only is not there.
func unpack(from io.Reader, to string) error {
	for {
		var header [110]byte
		if _, err := io.ReadFull(from, header[:]); err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		mode, size, name, err := entry(header[:])
		if err != nil {
			return err
		}
		path := make([]byte, name+padding(len(header)+name))
		content := make([]byte, size+padding(size))
		for _, part := range [][]byte{path, content} {
			if _, err := io.ReadFull(from, part); err != nil {
				return fmt.Errorf("reading the archive: %w", err)
			}
		}
		file := string(bytes.TrimRight(path[:name], "\x00"))
		if file == "TRAILER!!!" {
			return nil
		}
		at := filepath.Join(to, filepath.Join("/", file))
		if mode&0o170000 == 0o040000 {
			err = os.MkdirAll(at, 0o755) //nolint:gosec // world-readable
		} else if err = os.WriteFile(at+".part", content[:size], os.FileMode(mode)&os.ModePerm); err == nil {
			err = os.Rename(at+".part", at)
		}
		if err != nil {
			return err
		}
	}
}

// entry reads mode, size and the length of the name.
func entry(header []byte) (mode uint32, size, name int, err error) {
	if string(header[:6]) != "070701" {
		return 0, 0, 0, errors.New("reading the archive: an entry does not begin as it should")
	}
	var fields [13]uint64
	for i := range fields {
		if fields[i], err = strconv.ParseUint(string(header[6+8*i:14+8*i]), 16, 32); err != nil {
			return 0, 0, 0, fmt.Errorf("reading the archive: %w", err)
		}
	}
	if fields[6] > maxFile || fields[11] > 4096 {
		return 0, 0, 0, errors.New("reading the archive: an entry is too large")
	}
	return uint32(fields[1]), int(fields[6]), int(fields[11]), nil //nolint:gosec // are bounded
}

func padding(length int) int { return (4 - length%4) % 4 }
