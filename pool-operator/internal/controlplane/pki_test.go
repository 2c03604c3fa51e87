// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	testNow  = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	testHost = netip.MustParseAddr("127.0.0.1")
	testIP   = net.IPv4(10, 96, 0, 1)
)

func newPKI(t *testing.T) layout {
	t.Helper()
	d := layout(t.TempDir())
	require.NoError(t, d.create())
	require.NoError(t, keys(d).ensure(testNow, testHost, testIP, false))
	return d
}

func snapshot(t *testing.T, d layout) map[string]string {
	t.Helper()
	files, err := filepath.Glob(d.pki("*"))
	require.NoError(t, err)
	content := map[string]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		content[filepath.Base(file)] = string(raw)
	}
	return content
}

func certificate(t *testing.T, d layout, name string) *x509.Certificate {
	t.Helper()
	raw, err := os.ReadFile(d.pki(name + ".crt"))
	require.NoError(t, err)
	block, _ := pem.Decode(raw)
	parsed, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return parsed
}

func TestServingCertificateIsTrustedForEveryNameOfTheServer(t *testing.T) {
	d := newPKI(t)
	roots := x509.NewCertPool()
	roots.AddCert(certificate(t, d, "ca"))
	for _, name := range []string{"localhost", "127.0.0.1", "10.96.0.1", "kubernetes.default.svc"} {
		_, err := certificate(t, d, "apiserver").Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: testNow})
		assert.NoError(t, err, name)
	}
}

func TestCertificatesAreKeptUntilTheyNearTheirEnd(t *testing.T) {
	d := newPKI(t)
	first := snapshot(t, d)
	require.NoError(t, keys(d).ensure(testNow.Add(24*time.Hour), testHost, testIP, false))
	assert.Equal(t, first, snapshot(t, d), "valid ones are reused")

	late := testNow.Add(leafLifetime - renewBefore + time.Hour)
	require.NoError(t, keys(d).ensure(late, testHost, testIP, false))
	renewed := snapshot(t, d)
	for _, name := range []string{"apiserver.crt", "controller-manager.crt", "front-proxy-client.crt", "admin.crt"} {
		assert.NotEqual(t, first[name], renewed[name], name)
	}
	for _, name := range []string{"ca.crt", "ca.key", "sa.key", "sa.pub"} {
		assert.Equal(t, first[name], renewed[name], "%s stays: what was handed out depends on it", name)
	}
}

// A machine that starts may have its clock set hours later. Its authorities are never made anew.
func TestCertificatesOfAClockThatWasAheadAreValidWhenItIsRight(t *testing.T) {
	d := newPKI(t)
	right := testNow.AddDate(-2, 0, 0)
	require.NoError(t, keys(d).ensure(right, testHost, testIP, false))
	for name, authority := range map[string]string{"apiserver": "ca", "admin": "ca", "controller-manager": "ca", "front-proxy-client": "front-proxy-ca"} {
		roots := x509.NewCertPool()
		roots.AddCert(certificate(t, d, authority))
		_, err := certificate(t, d, name).Verify(x509.VerifyOptions{Roots: roots, CurrentTime: right, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		assert.NoError(t, err, name)
	}
}

func TestServingCertificateFollowsTheAddress(t *testing.T) {
	d := newPKI(t)
	require.NoError(t, keys(d).ensure(testNow, netip.MustParseAddr("192.0.2.7"), testIP, false))
	assert.NoError(t, certificate(t, d, "apiserver").VerifyHostname("192.0.2.7"))
}

func TestEveryInterruptedWriteIsRepaired(t *testing.T) {
	whole := snapshot(t, newPKI(t))
	for missing := range whole {
		t.Run("without "+missing, func(t *testing.T) {
			d := layout(t.TempDir())
			require.NoError(t, d.create())
			for name, content := range whole {
				if name != missing {
					require.NoError(t, os.WriteFile(d.pki(name), []byte(content), 0o600))
				}
			}
			require.NoError(t, keys(d).ensure(testNow, testHost, testIP, false))
			roots := x509.NewCertPool()
			roots.AddCert(certificate(t, d, "ca"))
			_, err := certificate(t, d, "admin").Verify(x509.VerifyOptions{
				Roots: roots, CurrentTime: testNow, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			})
			require.NoError(t, err)
			_, err = keys(d).readPair("admin")
			require.NoError(t, err)
		})
	}
}

func TestKeysAreReadableByTheirUserOnly(t *testing.T) {
	plane := openPlane(t, Options{Tokens: []Token{{Secret: "s3cret", User: "u"}}})
	err := filepath.Walk(plane.Dir(), func(path string, info os.FileInfo, err error) error {
		assert.Zero(t, info.Mode().Perm()&0o077, path)
		return err
	})
	require.NoError(t, err)
}
