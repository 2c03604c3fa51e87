// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/muster-io/muster/apis/pki"
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

// authority is a certificate authority in memory.
type authority struct{ pki.Pair }

// pair is a certificate and its key, in PEM.
type pair struct{ certificate, key []byte }

// leaf describes a certificate.
type leaf struct {
	user, group string
	names       []string
	addresses   []net.IP
	usage       []x509.ExtKeyUsage
}

// Usages of certificates. Peers are servers and clients of each other.
var (
	asClient = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	asServer = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	asPeer   = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

// newAuthority makes an authority that signs its own certificate.
func newAuthority(now time.Time, name string) (authority, pair, error) {
	made, err := pki.NewAuthority(name, pki.Period{From: now.Add(-clockSkew), Until: now.Add(lifetime)})
	if err != nil {
		return authority{}, pair{}, err
	}
	encoded, err := encode(made)
	return authority{made}, encoded, err
}

// readAuthority is newAuthority's reverse. Its error contains no secret.
func readAuthority(from pair) (authority, error) {
	read, err := pki.Parse(from.certificate, from.key)
	switch {
	case errors.Is(err, pki.ErrForeignKey):
		return authority{}, errors.New("the key of the authority is not that of its certificate")
	case err != nil:
		return authority{}, fmt.Errorf("the authority is not a certificate and a key in PEM: %w", err)
	}
	return authority{read}, nil
}

// issue makes a key and a certificate for it.
func (a authority) issue(now time.Time, valid time.Duration, l leaf) (pair, error) {
	asked := pki.Leaf{User: l.user, Names: l.names, Addresses: l.addresses, Usages: l.usage}
	if l.group != "" {
		asked.Groups = []string{l.group}
	}
	made, err := a.Issue(asked, pki.Period{From: now.Add(-clockSkew), Until: now.Add(valid)})
	if err != nil {
		return pair{}, err
	}
	return encode(made)
}

func encode(made pki.Pair) (pair, error) {
	certificate, key, err := made.Encode()
	return pair{certificate, key}, err
}

// newKey makes a key, in PEM.
func newKey() ([]byte, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	return pki.EncodeKey(key)
}
