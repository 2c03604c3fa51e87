// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	year = Period{From: noon.Add(-time.Hour), Until: noon.AddDate(1, 0, 0)}
)

func newAuthority(t *testing.T) Pair {
	t.Helper()
	authority, err := NewAuthority(ClusterAuthority, year)
	require.NoError(t, err)
	return authority
}

func verify(authority, leaf Pair, usage x509.ExtKeyUsage, at time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate)
	_, err := leaf.Certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestAnAPIServerIsTrustedAtItsHostsAndAsAService(t *testing.T) {
	authority := newAuthority(t)
	server, err := authority.Issue(APIServer("192.0.2.7", "api.example.org", "fd00::1", "localhost"), year)
	require.NoError(t, err)
	require.NoError(t, verify(authority, server, x509.ExtKeyUsageServerAuth, noon))
	require.Error(t, verify(authority, server, x509.ExtKeyUsageClientAuth, noon))
	for _, host := range []string{"192.0.2.7", "api.example.org", "fd00::1", "localhost", "kubernetes", "kubernetes.default.svc.cluster.local"} {
		require.NoError(t, server.Certificate.VerifyHostname(host), host)
	}
	require.Error(t, server.Certificate.VerifyHostname("other.example.org"))
	assert.False(t, server.Certificate.IsCA)
}

func TestClientsAreUsersOfTheirGroupsInTheirPeriod(t *testing.T) {
	authority := newAuthority(t)
	for _, leaf := range []Leaf{Admin(), ControllerManager(), Scheduler(), KubeletClient("kubelet-clients"), FrontProxy()} {
		client, err := authority.Issue(leaf, year)
		require.NoError(t, err)
		assert.Equal(t, leaf.User, client.Certificate.Subject.CommonName)
		assert.Equal(t, leaf.Groups, client.Certificate.Subject.Organization, leaf.User)
		require.NoError(t, verify(authority, client, x509.ExtKeyUsageClientAuth, noon))
		require.Error(t, verify(authority, client, x509.ExtKeyUsageServerAuth, noon))
		require.Error(t, verify(authority, client, x509.ExtKeyUsageClientAuth, year.From.Add(-time.Second)))
		require.Error(t, verify(authority, client, x509.ExtKeyUsageClientAuth, year.Until.Add(time.Second)))
		require.Error(t, verify(newAuthority(t), client, x509.ExtKeyUsageClientAuth, noon))
	}
}

func TestASelfSignedServerIsItsOwnAuthority(t *testing.T) {
	server, err := NewSelfSigned([]string{"host.example.org", "192.0.2.7"}, year)
	require.NoError(t, err)
	assert.Equal(t, "host.example.org", server.Certificate.Subject.CommonName)
	for _, host := range []string{"host.example.org", "192.0.2.7"} {
		require.NoError(t, server.Certificate.VerifyHostname(host))
	}
	require.NoError(t, verify(server, server, x509.ExtKeyUsageServerAuth, noon))
}

func TestAPairIsReadAsItWasEncoded(t *testing.T) {
	pair := newAuthority(t)
	certificate, key, err := pair.Encode()
	require.NoError(t, err)
	_, err = tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	read, err := Parse(certificate, key)
	require.NoError(t, err)
	assert.True(t, read.Certificate.Equal(pair.Certificate))
	assert.True(t, read.Key.Equal(pair.Key))
	public, err := EncodePublicKey(pair.Key)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(public), "-----BEGIN PUBLIC KEY-----\n"))

	_, foreign, err := newAuthority(t).Encode()
	require.NoError(t, err)
	_, err = Parse(certificate, foreign)
	require.ErrorIs(t, err, ErrForeignKey)
}

func TestWhatCannotBeReadIsNotRepeated(t *testing.T) {
	certificate, key, err := newAuthority(t).Encode()
	require.NoError(t, err)
	secret := strings.Split(string(key), "\n")[1]
	for name, pair := range map[string][2][]byte{
		"no certificate":   {key, key},
		"no key":           {certificate, certificate},
		"a truncated key":  {certificate, []byte(strings.Replace(string(key), secret, secret[:16], 1))},
		"text without PEM": {[]byte(secret), []byte(secret)},
	} {
		_, err := Parse(pair[0], pair[1])
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), secret[:16], name)
	}
}
