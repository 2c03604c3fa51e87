// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/muster-io/muster/pool-operator/internal/writecheck"
)

// probeTimeout bounds one question to the API server.
const probeTimeout = 5 * time.Second

// probe asks an API server questions as its admin. It may be used concurrently.
type probe struct {
	client *http.Client
	url    string
}

func (p *Plane) newProbe() (*probe, error) {
	certificate, err := tls.LoadX509KeyPair(p.dir.pki("admin.crt"), p.dir.pki("admin.key"))
	if err != nil {
		return nil, fmt.Errorf("loading the admin certificate: %w", err)
	}
	ca, err := os.ReadFile(p.dir.pki("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("loading the certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &probe{
		url: p.URL(),
		client: &http.Client{
			Timeout: probeTimeout,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{certificate},
			}},
		},
	}, nil
}

// full asks whether etcd has reached the quota of its database. An etcd that does not answer counts as one that has not.
func (p *probe) full(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+writecheck.Path, strings.NewReader(writecheck.Body))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return err == nil && writecheck.Full(body)
}

// get returns the answer to a GET of the path when its status is 200. The error is one stable sentence.
func (p *probe) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s gives no answer: %w", path, rootCause(err))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("%s gives no complete answer: %w", path, rootCause(err))
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s%s", path, response.Status, failedChecks(string(body)))
	}
	return body, nil
}

// rootCause drops the layers that name ports of clients and times, which differ from one attempt to the next.
func rootCause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) {
		return errors.New("timed out")
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}
	return err
}

// failedChecks picks the checks out of an answer of /readyz that did not pass.
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, name)
		}
	}
	if len(failed) == 0 {
		return ""
	}
	return " (waits for " + strings.Join(failed, ", ") + ")"
}

func (p *probe) close() { p.client.CloseIdleConnections() }

// Check asks the running API server whether it is ready, and for its version; the error says what it waits for.
func (p *Plane) Check(ctx context.Context) (version string, err error) {
	asked, err := p.sharedProbe()
	if err != nil {
		return "", err
	}
	if _, err := asked.get(ctx, "/readyz"); err != nil {
		return "", err
	}
	body, err := asked.get(ctx, "/version")
	if err != nil {
		return "", err
	}
	var answer struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", fmt.Errorf("reading the answer of /version: %w", err)
	}
	return answer.GitVersion, nil
}

// Full asks the running API server whether etcd refuses writes because it has reached the quota of its database.
func (p *Plane) Full(ctx context.Context) bool {
	asked, err := p.sharedProbe()
	return err == nil && asked.full(ctx)
}

// EtcdSocket is the socket at which etcd listens while it runs.
func (p *Plane) EtcdSocket() string { return p.dir.socket() }

// sharedProbe keeps one connection for all checks.
func (p *Plane) sharedProbe() (*probe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probe == nil {
		asked, err := p.newProbe()
		if err != nil {
			return nil, err
		}
		p.probe = asked
	}
	return p.probe, nil
}

// setProbe replaces the shared probe and returns the one before.
func (p *Plane) setProbe(next *probe) *probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	previous := p.probe
	p.probe = next
	return previous
}
