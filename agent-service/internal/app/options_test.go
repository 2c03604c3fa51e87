// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestAWarningWithoutAuthenticationis logged, and the defaults accept only local clients.
func TestAWarningWithoutAuthentication(t *testing.T) {
	for name, c := range map[string]struct {
		arguments []string
		warned    bool
	}{
		"by default only local clients are accepted": {nil, false},
		"all interfaces":       {[]string{"--listen=:8090"}, true},
		"one interface":        {[]string{"--listen=192.0.2.1:8090"}, true},
		"IPv6 of this machine": {[]string{"--listen=[::1]:8090"}, false},
		"people have tokens":   {[]string{"--listen=:8090", "--oidc-issuer=kubernetes"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := ParseOptions(c.arguments)
			require.NoError(t, err)
			core, logs := observer.New(zap.WarnLevel)
			o.warn(zap.New(core))
			assert.Equal(t, c.warned, logs.Len() == 1)
		})
	}
}
