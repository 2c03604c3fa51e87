// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

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

const (
	// lifetime is that of a cluster's authority and of the credentials that agent-service keeps: it has no key to renew them with.
	lifetime = 10 * 365 * 24 * time.Hour
	// leafLifetime is that of certificates on the machine, which renews them every renewInterval.
	leafLifetime  = 365 * 24 * time.Hour
	renewInterval = 30 * 24 * time.Hour
	// clockSkew is how far the clock of a machine may be behind when it starts.
	clockSkew = 24 * time.Hour
)

// Types of PEM blocks.
const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "EC PRIVATE KEY"
	publicBlock      = "PUBLIC KEY"
)

// authority is a certificate authority in memory.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// pair is a certificate and its key, in PEM.
type pair struct{ certificate, key []byte }

// leaf describes a certificate.
type leaf struct {
	user, group string
	names       []string
	addresses   []net.IP
	usage       x509.ExtKeyUsage
}

// newAuthority makes an authority that signs its own certificate.
func newAuthority(now time.Time, name string) (authority, pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	made, err := authority{}.sign(template)
	if err != nil {
		return authority{}, pair{}, fmt.Errorf("making the authority %s: %w", name, err)
	}
	a, err := readAuthority(made)
	return a, made, err
}

// readAuthority is newAuthority's reverse. Its error contains no secret.
func readAuthority(from pair) (authority, error) {
	certificate, _ := pem.Decode(from.certificate)
	key, _ := pem.Decode(from.key)
	if certificate == nil || key == nil {
		return authority{}, errors.New("the authority is not a certificate and a key in PEM")
	}
	var a authority
	var err error
	if a.certificate, err = x509.ParseCertificate(certificate.Bytes); err != nil {
		return authority{}, errors.New("the certificate of the authority cannot be read")
	}
	if a.key, err = x509.ParseECPrivateKey(key.Bytes); err != nil || !a.key.PublicKey.Equal(a.certificate.PublicKey) {
		return authority{}, errors.New("the key of the authority is not that of its certificate")
	}
	return a, nil
}

// issue makes a key and a certificate for it.
func (a authority) issue(now time.Time, valid time.Duration, l leaf) (pair, error) {
	subject := pkix.Name{CommonName: l.user}
	if l.group != "" {
		subject.Organization = []string{l.group}
	}
	made, err := a.sign(&x509.Certificate{
		Subject: subject, DNSNames: l.names, IPAddresses: l.addresses, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(valid),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{l.usage},
	})
	if err != nil {
		return pair{}, fmt.Errorf("signing the certificate of %s: %w", l.user, err)
	}
	return made, nil
}

// sign makes a key and a certificate for it, which the zero authority lets sign itself.
func (a authority) sign(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return pair{}, err
	}
	if a.certificate == nil {
		a = authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	private, err := encodeKey(key)
	return pair{pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}), private}, err
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}
