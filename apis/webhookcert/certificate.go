// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookcert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Keys of the Secret that holds the certificate.
const (
	// keyCA is a PEM bundle: the certificate, which is its own authority, and the one before it.
	keyCA   = "ca.crt"
	keyCert = "tls.crt"
	keyKey  = "tls.key"
)

const (
	// lifetime of a certificate; it is replaced when a third of that is left.
	lifetime = 90 * 24 * time.Hour
	// early makes a certificate valid for API servers whose clock is behind.
	early = time.Hour
	// again is when a certificate that is good is looked at again at the latest.
	again = 12 * time.Hour
)

// usable reads the pair of a Secret. It returns nil where there is none for these hosts, or where it ends soon.
func usable(now time.Time, data map[string][]byte, hosts []string) *tls.Certificate {
	pair, err := tls.X509KeyPair(data[keyCert], data[keyKey])
	if err != nil || len(data[keyCA]) == 0 || renewal(&pair).Before(now) {
		return nil
	}
	for _, host := range hosts {
		if pair.Leaf.VerifyHostname(host) != nil {
			return nil
		}
	}
	return &pair
}

// renewal is when a certificate has to be replaced.
func renewal(pair *tls.Certificate) time.Time { return pair.Leaf.NotAfter.Add(-lifetime / 3) }

// issue makes the data of a Secret with a new certificate. The one before stays trusted: replicas and API servers learn of the new one
// at different times.
func issue(now time.Time, before map[string][]byte, hosts []string) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: hosts[0]}, NotBefore: now.Add(-early), NotAfter: now.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return map[string][]byte{
		keyCert: cert, keyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		keyCA: bytes.Join([][]byte{cert, before[keyCert]}, nil),
	}, nil
}
