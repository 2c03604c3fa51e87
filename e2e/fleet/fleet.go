// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet boots generated machines from discovery images. All that they know is what a machine finds in its image.
package fleet

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-io/muster/e2e/checkout"
)

// maxImage bounds what is read of an initial RAM disk.
const maxImage = 1 << 30

// Dial connects to an address that may only mean something inside a cluster.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Image is what a machine finds in its discovery image.
type Image struct {
	// URL is of the service, InfraEnv the id, and Token opens no other.
	URL, InfraEnv, Token string
}

// patience is how long an image is asked for that cannot be had at the moment.
const patience = time.Minute

var errAway = errors.New("the image cannot be had at the moment")

// Read downloads the initial RAM disk of a discovery image, as a machine that boots by network does, and reads what is meant for the agent.
func Read(ctx context.Context, dial Dial, initrd string) (Image, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	began := time.Now()
	for {
		data, err := download(ctx, client, initrd)
		if err == nil {
			return find(data)
		}
		if !errors.Is(err, errAway) || time.Since(began) > patience {
			return Image{}, fmt.Errorf("downloading the image: %w", err)
		}
		select {
		case <-ctx.Done():
			return Image{}, fmt.Errorf("downloading the image: %w", ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

func download(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxImage))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusOK:
		return data, nil
	case http.StatusServiceUnavailable:
		return nil, fmt.Errorf("%w: %.200s", errAway, data)
	default:
		return nil, fmt.Errorf("%s: %.200s", response.Status, data)
	}
}

// find looks for the overlay, which is the last archive of the RAM disk.
func find(initrd []byte) (Image, error) {
	for at := len(initrd); ; {
		at = bytes.LastIndex(initrd[:at], []byte{0x1f, 0x8b, 8})
		if at < 0 {
			return Image{}, errors.New("the image holds no ignition")
		}
		reader, err := gzip.NewReader(bytes.NewReader(initrd[at:]))
		if err != nil {
			continue
		}
		reader.Multistream(false)
		content, _ := io.ReadAll(io.LimitReader(reader, 8<<20))
		if begin := bytes.Index(content, []byte(`{"ignition"`)); begin >= 0 {
			return parse(content[begin:])
		}
	}
}

func parse(ignition []byte) (Image, error) {
	files, err := filesOf(ignition)
	if err != nil {
		return Image{}, err
	}
	image := Image{Token: string(files["/etc/muster/token"])}
	for line := range strings.Lines(string(files["/etc/muster/agent.env"])) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "AGENT_URL":
			image.URL = value
		case "AGENT_INFRA_ENV_ID":
			image.InfraEnv = value
		}
	}
	if image.URL == "" || image.InfraEnv == "" || image.Token == "" {
		return Image{}, errors.New("the ignition does not say where the service is, and who may come to it")
	}
	return image, nil
}

// filesOf are the files that ignition writes, by path.
func filesOf(ignition []byte) (map[string][]byte, error) {
	var config struct {
		Storage struct {
			Files []struct {
				Path     string `json:"path"`
				Contents struct {
					Source string `json:"source"`
				} `json:"contents"`
			} `json:"files"`
		} `json:"storage"`
	}
	if err := json.NewDecoder(bytes.NewReader(ignition)).Decode(&config); err != nil {
		return nil, fmt.Errorf("reading the ignition: %w", err)
	}
	files := map[string][]byte{}
	for _, file := range config.Storage.Files {
		content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(file.Contents.Source, "data:;base64,"))
		if err != nil {
			return nil, fmt.Errorf("reading %s of the ignition: %w", file.Path, err)
		}
		files[file.Path] = content
	}
	return files, nil
}

// Fleet are machines that run.
type Fleet struct {
	cmd     *exec.Cmd
	forward net.Listener
	dir     string
	stop    sync.Once
}

// Boot starts generated machines from an image. Seed tells fleets apart: the same one makes the same machines. They run until Stop, or until this process ends; where
// the service is reached through a cluster, until ctx ends. More are further flags of the agent.
func Boot(ctx context.Context, image Image, dial Dial, seed string, machines int, more ...string) (*Fleet, error) {
	program, err := checkout.Binary("agent")
	if err != nil {
		return nil, err
	}
	f := &Fleet{}
	address, err := f.reach(ctx, image.URL, dial)
	if err != nil {
		return nil, err
	}
	if f.dir, err = os.MkdirTemp("", "muster-fleet-"); err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	token := filepath.Join(f.dir, "token")
	if err := os.WriteFile(token, []byte(image.Token), 0o600); err != nil {
		f.Stop()
		return nil, fmt.Errorf("keeping the token: %w", err)
	}
	log, err := os.Create(filepath.Join(f.dir, "agent.log"))
	if err != nil {
		f.Stop()
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	defer func() { _ = log.Close() }()
	flags := []string{
		"--url=" + address, "--infra-env-id=" + image.InfraEnv, "--token-file=" + token, "--simulate=" + strconv.Itoa(machines), "--seed=" + seed, "--boot=100ms", "--first-boot-dir=" + f.dir,
	}
	cmd := exec.Command(program, append(flags, more...)...) //nolint:noctx // Stop ends it
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		f.Stop()
		return nil, fmt.Errorf("starting machines: %w", err)
	}
	f.cmd = cmd
	return f, nil
}

// Log is what the machines said.
func (f *Fleet) Log() string {
	text, _ := os.ReadFile(filepath.Join(f.dir, "agent.log"))
	return string(text)
}

// FirstBoot returns the files in the first-boot data that a host was installed with last, by path. It fails while there is none.
func (f *Fleet) FirstBoot(host string) (map[string][]byte, error) {
	data, err := os.ReadFile(filepath.Join(f.dir, host+".ign"))
	if err != nil {
		return nil, fmt.Errorf("reading the first-boot data: %w", err)
	}
	return filesOf(data)
}

// Stop switches the machines off.
func (f *Fleet) Stop() {
	f.stop.Do(func() {
		if f.cmd != nil {
			_ = f.cmd.Process.Kill()
			_ = f.cmd.Wait()
		}
		if f.forward != nil {
			_ = f.forward.Close()
		}
		_ = os.RemoveAll(f.dir)
	})
}

// reach is an address of the service that a process of this machine can use: its own, or one that is handed on.
func (f *Fleet) reach(ctx context.Context, service string, dial Dial) (string, error) {
	u, err := url.Parse(service)
	if err != nil {
		return "", fmt.Errorf("reading the address of the service: %w", err)
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() {
		return service, nil
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if f.forward, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return "", fmt.Errorf("listening: %w", err)
	}
	go handOn(ctx, f.forward, dial, net.JoinHostPort(u.Hostname(), port))
	return u.Scheme + "://" + f.forward.Addr().String(), nil
}

// handOn connects clients of a listener with an address, until the listener is closed.
func handOn(ctx context.Context, from net.Listener, dial Dial, to string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		here, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = here.Close() }()
			there, err := dial(ctx, "tcp", to)
			if err != nil {
				return
			}
			defer func() { _ = there.Close() }()
			done := make(chan struct{}, 2)
			for _, pair := range [][2]net.Conn{{here, there}, {there, here}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					done <- struct{}{}
				}()
			}
			select {
			case <-done:
			case <-ctx.Done():
			}
		}()
	}
}
