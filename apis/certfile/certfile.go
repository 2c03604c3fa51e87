// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certfile serves TLS with a certificate from files that are replaced when it is renewed, as cert-manager does it in the Secret of a volume.
package certfile

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// interval is the least time between two looks at the files.
const interval = time.Second

// Pair is the certificate and the key of a server, in files.
type Pair struct {
	certFile, keyFile string
	failed            func(error)

	mu        sync.Mutex
	looked    time.Time
	cert, key []byte
	current   *tls.Certificate
	said      string
}

// Load reads the files. Later, while they cannot be read or do not fit each other, failed is called once for each reason, and the former certificate is served.
func Load(certFile, keyFile string, failed func(error)) (*Pair, error) {
	p := &Pair{certFile: certFile, keyFile: keyFile, failed: failed}
	if err := p.read(); err != nil {
		return nil, err
	}
	p.looked = time.Now()
	return p, nil
}

// GetCertificate returns the certificate that the files hold. It fits tls.Config.
func (p *Pair) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := time.Since(p.looked); since >= 0 && since < interval {
		return p.current, nil
	}
	p.looked = time.Now()
	switch err := p.read(); {
	case err == nil:
		p.said = ""
	case err.Error() != p.said:
		p.said = err.Error()
		p.failed(err)
	}
	return p.current, nil
}

// read takes the files over, if they have changed.
func (p *Pair) read() error {
	cert, err := os.ReadFile(p.certFile)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	key, err := os.ReadFile(p.keyFile)
	if err != nil {
		return fmt.Errorf("reading the key of the certificate: %w", err)
	}
	if bytes.Equal(cert, p.cert) && bytes.Equal(key, p.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("reading the certificate %s with the key %s: %w", p.certFile, p.keyFile, err)
	}
	p.cert, p.key, p.current = cert, key, &pair
	return nil
}
