// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki makes and reads the keys and certificates of Muster's programs and of the clusters that it runs. All keys are ECDSA on P-256; all text is PEM, as client-go
// reads and writes it. Its errors contain no secret.
//
// Callers choose how long a certificate is valid, where it is stored and when it is renewed.
package pki

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

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// ErrForeignKey says that a certificate was read together with a key that is not its own.
var ErrForeignKey = errors.New("the key is not that of the certificate")

// Pair is a certificate and its key.
type Pair struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// Period is the time in which a certificate is valid. It begins before the certificate is made by as much as the clock of a reader may be behind.
type Period struct{ From, Until time.Time }

// Lasting is the period of an authority, also of a certificate that is its own. It begins a lifetime ago: one that is made while the clock is ahead is valid when the clock is right again.
func Lasting(now time.Time, lifetime time.Duration) Period {
	return Period{From: now.Add(-lifetime), Until: now.Add(lifetime)}
}

// Leaf describes a certificate that an authority signs.
type Leaf struct {
	// User is the common name, Groups are the organizations.
	User   string
	Groups []string
	// Names and Addresses are what a server answers at.
	Names     []string
	Addresses []net.IP
	Usages    []x509.ExtKeyUsage
}

// Client describes the certificate of a client.
func Client(user string, groups ...string) Leaf {
	return Leaf{User: user, Groups: groups, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// Server describes the certificate of a server that answers at the hosts, which are names or addresses.
func Server(hosts ...string) Leaf {
	names, addresses := split(hosts)
	return Leaf{User: hosts[0], Names: names, Addresses: addresses, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
}

// NewAuthority makes an authority, which signs its own certificate.
func NewAuthority(name string, valid Period) (Pair, error) {
	pair, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: valid.From, NotAfter: valid.Until,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}, nil)
	if err != nil {
		return Pair{}, fmt.Errorf("making the authority %s: %w", name, err)
	}
	return pair, nil
}

// Issue makes a key and a certificate for it, signed by the authority.
func (p Pair) Issue(leaf Leaf, valid Period) (Pair, error) {
	pair, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: leaf.User, Organization: leaf.Groups}, DNSNames: leaf.Names, IPAddresses: leaf.Addresses, NotBefore: valid.From, NotAfter: valid.Until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: leaf.Usages,
	}, &p)
	if err != nil {
		return Pair{}, fmt.Errorf("signing the certificate of %s: %w", leaf.User, err)
	}
	return pair, nil
}

// NewSelfSigned makes the certificate of a server that is its own authority, for at least one host: a name or an address.
func NewSelfSigned(hosts []string, valid Period) (Pair, error) {
	names, addresses := split(hosts)
	pair, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: names, IPAddresses: addresses, NotBefore: valid.From, NotAfter: valid.Until,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true,
	}, nil)
	if err != nil {
		return Pair{}, fmt.Errorf("making a certificate for %s: %w", hosts[0], err)
	}
	return pair, nil
}

// split tells the names among hosts from the addresses.
func split(hosts []string) (names []string, addresses []net.IP) {
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			addresses = append(addresses, ip)
		} else {
			names = append(names, host)
		}
	}
	return names, addresses
}

// sign makes a key and a certificate for it, signed by the authority or, without one, by itself.
func sign(template *x509.Certificate, authority *Pair) (Pair, error) {
	key, err := NewKey()
	if err != nil {
		return Pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return Pair{}, fmt.Errorf("generating a serial number: %w", err)
	}
	if authority == nil {
		authority = &Pair{Certificate: template, Key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Certificate, key.Public(), authority.Key)
	if err != nil {
		return Pair{}, err
	}
	certificate, err := x509.ParseCertificate(der)
	return Pair{Certificate: certificate, Key: key}, err
}

// Encode returns the certificate and the key as PEM.
func (p Pair) Encode() (certificate, key []byte, err error) {
	if certificate, err = certutil.EncodeCertificates(p.Certificate); err != nil {
		return nil, nil, fmt.Errorf("encoding a certificate: %w", err)
	}
	key, err = EncodeKey(p.Key)
	return certificate, key, err
}

// Parse reads a certificate and its key. Its error is ErrForeignKey when both are good, but the key belongs to another certificate.
func Parse(certificate, key []byte) (Pair, error) {
	var p Pair
	var err error
	if p.Certificate, err = ParseCertificate(certificate); err != nil {
		return Pair{}, err
	}
	if p.Key, err = ParseKey(key); err != nil {
		return Pair{}, err
	}
	if !p.Key.PublicKey.Equal(p.Certificate.PublicKey) {
		return Pair{}, ErrForeignKey
	}
	return p, nil
}

// ParseCertificate reads the first certificate of a text.
func ParseCertificate(text []byte) (*x509.Certificate, error) {
	certificates, err := certutil.ParseCertsPEM(text)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	return certificates[0], nil
}

// NewKey makes a key.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

// EncodeKey returns a private key as PEM.
func EncodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return text, nil
}

// ParseKey reads the private key of a text.
func ParseKey(text []byte) (*ecdsa.PrivateKey, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, fmt.Errorf("reading a key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("reading a key: it is a %T instead of an ECDSA key", parsed)
	}
	return key, nil
}

// EncodePublicKey returns the public half of a key as PEM.
func EncodePublicKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding a public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: der}), nil
}
