// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/pki"
)

// What is in the immutable Secret is never made anew, whatever the clock said.
func TestCertificatesOfAClockThatWasAheadAreValidWhenItIsRight(t *testing.T) {
	right := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	files, err := newPKI(right.AddDate(2, 0, 0))
	require.NoError(t, err)
	renewed, err := newLeaves(right, files, []string{"blue.example.com"})
	require.NoError(t, err)
	maps.Copy(files, renewed)
	for name, authority := range map[string]string{"apiserver": "ca", "admin": "ca", "controller-manager": "ca", "front-proxy-client": "front-proxy-ca"} {
		root, err := pki.ParseCertificate(files[authority+".crt"])
		require.NoError(t, err)
		roots := x509.NewCertPool()
		roots.AddCert(root)
		certificate, err := pki.ParseCertificate(files[name+".crt"])
		require.NoError(t, err)
		_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: right, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		assert.NoError(t, err, name)
	}
}
