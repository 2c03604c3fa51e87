// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

// trusting sends requests to servers that it trusts by the certificates of a file, as the file is at the time of the request. While it cannot be read, its former content
// counts.
type trusting struct {
	file string
	// system makes it trust what the system trusts, too, and go through the proxy that the environment names.
	system bool

	mu        sync.Mutex
	pem       []byte
	transport *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *trusting) RoundTrip(request *http.Request) (*http.Response, error) {
	transport, err := t.current()
	if err != nil {
		return nil, err
	}
	return transport.RoundTrip(request)
}

// current returns the transport for what the file holds.
func (t *trusting) current() (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pem, err := os.ReadFile(t.file)
	if err == nil && t.transport != nil && bytes.Equal(pem, t.pem) {
		return t.transport, nil
	}
	var made *http.Transport
	if err == nil {
		made, err = t.transportFor(pem)
	}
	switch {
	case err == nil:
		if t.transport != nil {
			t.transport.CloseIdleConnections()
		}
		t.pem, t.transport = pem, made
	case t.transport == nil:
		return nil, fmt.Errorf("reading the certificates: %w", err)
	}
	return t.transport, nil
}

func (t *trusting) transportFor(pem []byte) (*http.Transport, error) {
	made := &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second}
	roots := x509.NewCertPool()
	if t.system {
		made.Proxy = proxyTo
		if known, err := x509.SystemCertPool(); err == nil {
			roots = known
		}
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", t.file)
	}
	made.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	return made, nil
}
