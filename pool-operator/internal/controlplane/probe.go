// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// probeTimeout bounds one question to the API server.
const probeTimeout = 5 * time.Second

// probe asks an API server questions as its admin.
type probe struct {
	client *http.Client
	url    string
	// last is what the last failed question brought.
	last string
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
		url:  p.URL(),
		last: "it was not asked yet",
		client: &http.Client{
			Timeout: probeTimeout,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{certificate},
			}},
		},
	}, nil
}

// ok tells whether the API server answers a GET of the path with 200.
func (p *probe) ok(ctx context.Context, path string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		p.last = err.Error()
		return false
	}
	response, err := p.client.Do(request)
	if err != nil {
		p.last = err.Error()
		return false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err == nil && response.StatusCode == http.StatusOK {
		return true
	}
	p.last = path + ": " + response.Status + failedChecks(string(body))
	return false
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

// Ready asks the running API server whether it is ready; the error says what it waits for.
func (p *Plane) Ready(ctx context.Context) error {
	asked, err := p.newProbe()
	if err != nil {
		return err
	}
	defer asked.close()
	if !asked.ok(ctx, "/readyz") {
		return fmt.Errorf("the API server is not ready: %s", asked.last)
	}
	return nil
}
