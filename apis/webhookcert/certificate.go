// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookcert

import (
	"bytes"
	"crypto/tls"
	"time"

	"github.com/muster-io/muster/apis/pki"
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
	// again is when a certificate that is good is looked at again at the latest.
	again = 12 * time.Hour
)

// usable reads the pair of a Secret. It returns nil where there is none for these hosts, or where it ends soon, or is not valid yet, as when the clock was far ahead.
func usable(now time.Time, data map[string][]byte, hosts []string) *tls.Certificate {
	pair, err := tls.X509KeyPair(data[keyCert], data[keyKey])
	if err != nil || len(data[keyCA]) == 0 || renewal(&pair).Before(now) || now.Before(pair.Leaf.NotBefore) {
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
	made, err := pki.NewSelfSigned(hosts, pki.Lasting(now, lifetime))
	if err != nil {
		return nil, err
	}
	certificate, key, err := made.Encode()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{keyCert: certificate, keyKey: key, keyCA: bytes.Join([][]byte{certificate, before[keyCert]}, nil)}, nil
}
