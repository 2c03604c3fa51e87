// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package certfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/pki"
)

func issue(t *testing.T, host string) (certificate, key []byte) {
	t.Helper()
	made, err := pki.NewSelfSigned([]string{host}, pki.Period{From: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	certificate, key, err = made.Encode()
	require.NoError(t, err)
	return certificate, key
}

func TestARenewedCertificateIsServed(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(path string, content []byte) { require.NoError(t, os.WriteFile(path, content, 0o600)) }
	certificate, key := issue(t, "former.example.com")
	write(certFile, certificate)
	write(keyFile, key)
	var failures []error
	pair, err := Load(certFile, keyFile, func(err error) { failures = append(failures, err) })
	require.NoError(t, err)
	served := func() string {
		t.Helper()
		found, err := pair.GetCertificate(nil)
		require.NoError(t, err)
		return found.Leaf.DNSNames[0]
	}
	later := func() { pair.looked = pair.looked.Add(-interval) }
	assert.Equal(t, "former.example.com", served())

	certificate, key = issue(t, "renewed.example.com")
	write(certFile, certificate)
	assert.Equal(t, "former.example.com", served(), "the files are not read for each connection")
	for range 2 {
		later()
		assert.Equal(t, "former.example.com", served(), "the key is still the former one")
	}
	assert.Len(t, failures, 1, "each reason is said once")
	write(keyFile, key)
	later()
	assert.Equal(t, "renewed.example.com", served())

	require.NoError(t, os.Remove(keyFile))
	later()
	assert.Equal(t, "renewed.example.com", served(), "files that are gone end no service")
	require.Len(t, failures, 2)
	require.ErrorIs(t, failures[1], os.ErrNotExist)
	pair.looked = time.Now().Add(time.Hour)
	write(keyFile, key)
	assert.Equal(t, "renewed.example.com", served(), "a clock that was set back stops nothing")
	assert.Empty(t, pair.said)
}

func TestWhatCannotBeReadAtFirstIsAnError(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}
