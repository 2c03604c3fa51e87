// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifetime of the authorities and of the certificates by which the programs of one cluster know each other. They live in an immutable Secret and are never replaced.
const lifetime = 10 * 365 * 24 * time.Hour

// serviceRange holds the addresses of Services inside a hosted cluster, serviceIP the first of them, which the API server answers at.
const (
	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1"
)

// pki collects the files of the volume that the containers read.
type pki struct {
	now      time.Time
	lifetime time.Duration
	files    map[string][]byte
}

type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// newPKI makes two authorities, the certificates of the programs that call each other, and the key of service-account tokens, by file name.
func newPKI(now time.Time) (map[string][]byte, error) {
	p := &pki{now: now, lifetime: lifetime, files: map[string][]byte{}}
	cluster, err := p.authority("ca", "kubernetes")
	if err != nil {
		return nil, err
	}
	front, err := p.authority("front-proxy-ca", "front-proxy-ca")
	if err != nil {
		return nil, err
	}
	if _, err := p.issue("controller-manager", clientCertificate("system:kube-controller-manager"), &cluster); err != nil {
		return nil, err
	}
	if _, err := p.issue("front-proxy-client", clientCertificate("front-proxy-client"), &front); err != nil {
		return nil, err
	}
	return p.files, p.serviceAccountKey()
}

// newLeaves makes the serving certificate for the names, and the administrator's, signed by the authority of the identity.
func newLeaves(now time.Time, identity map[string][]byte, names []string) (map[string][]byte, error) {
	certificate, err := parseCertificate(identity["ca.crt"])
	if err != nil {
		return nil, fmt.Errorf("reading the authority of the cluster: %w", err)
	}
	block, _ := pem.Decode(identity["ca.key"])
	if block == nil {
		return nil, errors.New("reading the authority of the cluster: there is no key")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of the cluster: %w", err)
	}
	p := &pki{now: now, lifetime: servingLifetime, files: map[string][]byte{}}
	cluster := &signer{certificate, key}
	if _, err := p.issue("apiserver", serverCertificate(names), cluster); err != nil {
		return nil, err
	}
	_, err = p.issue("admin", clientCertificate("system:admin", "system:masters"), cluster)
	return p.files, err
}

func serverCertificate(names []string) *x509.Certificate {
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, name)
		}
	}
	return server
}

func clientCertificate(user string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func (p *pki) authority(file, name string) (signer, error) {
	return p.issue(file, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}, nil)
}

// issue makes a key and a certificate for it, signed by s or, without one, by itself.
func (p *pki) issue(file string, template *x509.Certificate, s *signer) (signer, error) {
	key, err := p.key(file)
	if err != nil {
		return signer{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return signer{}, fmt.Errorf("generating a serial number: %w", err)
	}
	template.NotBefore, template.NotAfter = p.now.Add(-5*time.Minute), p.now.Add(p.lifetime)
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	if s == nil {
		s = &signer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.certificate, key.Public(), s.key)
	if err != nil {
		return signer{}, fmt.Errorf("signing the certificate %s: %w", file, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return signer{}, fmt.Errorf("reading back the certificate %s: %w", file, err)
	}
	p.files[file+".crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return signer{certificate, key}, nil
}

func (p *pki) key(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key %s: %w", file, err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key %s: %w", file, err)
	}
	p.files[file+".key"] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return key, nil
}

func (p *pki) serviceAccountKey() error {
	key, err := p.key("sa")
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding the service-account key: %w", err)
	}
	p.files["sa.pub"] = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return nil
}
