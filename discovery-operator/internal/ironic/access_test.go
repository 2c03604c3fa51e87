// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/pki"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
)

func TestTLS(t *testing.T) {
	clientCert, clientKey, authority := clientCertificate(t)
	serve := func(change func(*tls.Config)) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1.96")
			_, _ = w.Write([]byte(`{"nodes":[]}`))
		}))
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		change(s.TLS)
		s.Config.ErrorLog = nil
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	plain := serve(func(*tls.Config) {})
	mutual := serve(func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, authority })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: plain.Certificate().Raw})
	otherName := strings.Replace(plain.URL, "127.0.0.1", "localhost", 1)
	for name, c := range map[string]struct {
		config ironic.Config
		works  bool
	}{
		"an unknown authority":                 {ironic.Config{Endpoint: plain.URL}, false},
		"its authority":                        {ironic.Config{Endpoint: plain.URL, CA: ca}, true},
		"any certificate":                      {ironic.Config{Endpoint: plain.URL, Insecure: true}, true},
		"another name":                         {ironic.Config{Endpoint: otherName, CA: ca}, false},
		"another name, and names do not count": {ironic.Config{Endpoint: otherName, CA: ca, SkipSAN: true}, true},
		"names do not count, authorities do":   {ironic.Config{Endpoint: plain.URL, SkipSAN: true}, false},
		"without a client certificate":         {ironic.Config{Endpoint: mutual.URL, CA: ca}, false},
		"with a client certificate":            {ironic.Config{Endpoint: mutual.URL, CA: ca, Cert: clientCert, Key: clientKey}, true},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := ironic.New(c.config, nil)
			require.NoError(t, err)
			_, err = client.Nodes(t.Context(), "")
			if c.works {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, inventory.ProblemUnreachable, problem(t, err), err)
		})
	}
	_, err := ironic.New(ironic.Config{Endpoint: plain.URL, CA: []byte("no certificate")}, nil)
	assert.Equal(t, inventory.ProblemNoSecret, problem(t, err))
}

// clientCertificate makes a certificate of a client, and the authority that signed it.
func clientCertificate(t *testing.T) (cert, key []byte, authority *x509.CertPool) {
	valid := pki.Period{From: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}
	root, err := pki.NewAuthority("clients", valid)
	require.NoError(t, err)
	made, err := root.Issue(pki.Client("operator"), valid)
	require.NoError(t, err)
	cert, key, err = made.Encode()
	require.NoError(t, err)
	authority = x509.NewCertPool()
	authority.AddCert(root.Certificate)
	return cert, key, authority
}

// TestPollersAndSessionsByAddress: resources of one Ironic share its poller, each with its own credentials.
func TestPollersAndSessionsByAddress(t *testing.T) {
	read := map[string]int{}
	d := ironic.NewDialer(func() (ironic.Config, error) {
		return ironic.Config{Endpoint: "https://admin:right@ironic", Auth: ironic.AuthHTTPBasic}, nil
	}, func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		read[namespace+"/"+name]++
		if namespace != "a" {
			return nil, fmt.Errorf("secrets %q not found", name)
		}
		return map[string][]byte{"username": []byte("u"), "password": []byte("p")}, nil
	}, nil)
	type reference = metal3v1.IronicReference
	own := d.Address("a", nil)
	assert.Equal(t, own, d.Address("b", nil))
	assert.Equal(t, "https://ironic", own.Endpoint, "credentials are no part of the name")
	sessions := map[string]bool{own.Session: true}
	closed := reference{Endpoint: "https://ironic/", Auth: metal3v1.AuthHTTPBasic, CredentialsName: "s"}
	for namespace, r := range map[string]reference{
		"a": closed,
		"b": closed,
		"c": {Endpoint: "https://IRONIC:443/v1"},
		"d": {Endpoint: "https://ironic/v1/", DisableCertificateVerification: true},
	} {
		a := d.Address(namespace, &r)
		assert.Equal(t, own.View, a.View, "one Ironic has one poller, however it is written and whatever credentials are used")
		assert.False(t, sessions[a.Session], "%s has a session of its own", a.Session)
		sessions[a.Session] = true
		assert.Equal(t, r.DisableCertificateVerification, a.Unverified)
	}
	assert.NotEqual(t, own.Ironic, d.Address("a", &reference{Endpoint: "https://ironic:6385"}).Ironic)
	keystone := func(name string) reference {
		return reference{Endpoint: "https://ironic", Auth: metal3v1.AuthKeystone, CredentialsName: name}
	}
	one, two := keystone("one"), keystone("two")
	assert.Equal(t, own.Ironic, d.Address("a", &one).Ironic)
	assert.NotEqual(t, d.Address("a", &one).View, d.Address("a", &two).View, "a project's users see its own nodes")

	_, err := d.Client(t.Context(), "a", &closed)
	require.NoError(t, err)
	_, err = d.Client(t.Context(), "b", &closed)
	assert.Equal(t, inventory.ProblemNoSecret, problem(t, err))
	assert.Equal(t, map[string]int{"a/s": 1, "b/s": 1}, read)
}
