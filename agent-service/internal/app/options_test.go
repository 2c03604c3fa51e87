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

// TestAWarningWithoutAuthentication is logged, and the defaults accept only local clients.
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

func TestFlagsOfTheConsoleThatDoNotFitAreRefused(t *testing.T) {
	const issuer, id = "--oidc-issuer=https://dex.example.com", "--console-client-id=muster"
	for name, c := range map[string]struct {
		arguments []string
		want      string
	}{
		"people paste tokens":              {[]string{"--console"}, ""},
		"a public client":                  {[]string{"--console", issuer, id}, ""},
		"a client with a secret":           {[]string{"--console", issuer, id, "--console-client-secret-file=secret", "--console-url=https://muster.example.com"}, ""},
		"the audience of the client":       {[]string{"--console", issuer, id, "--oidc-audience=muster"}, ""},
		"a URL that is none":               {[]string{"--console", "--console-url=muster.example.com"}, "--console-url=muster.example.com: write http(s)://host:port without a slash at the end"},
		"a URL with a slash at the end":    {[]string{"--console", "--console-url=https://muster.example.com/"}, "--console-url=https://muster.example.com/: write http(s)://host:port without a slash at the end"},
		"a secret without a client":        {[]string{"--console", issuer, "--console-client-secret-file=secret"}, "--console-client-secret-file: give --console-client-id, too"},
		"a client without a console":       {[]string{issuer, id}, "--console-client-id: give --console, too"},
		"a client without an issuer":       {[]string{"--console", id, "--oidc-issuer=none"}, "--console-client-id: write the URL of the issuer in --oidc-issuer"},
		"a client where the cluster is it": {[]string{"--console", id, "--oidc-issuer=kubernetes"}, "--console-client-id: write the URL of the issuer in --oidc-issuer"},
		"another audience":                 {[]string{"--console", issuer, id, "--oidc-audience=other"}, "--oidc-audience=other: tokens of the console have the audience muster: write that, or leave --oidc-audience empty"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseOptions(append([]string{"--base-url=http://127.0.0.1:8090"}, c.arguments...))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}
