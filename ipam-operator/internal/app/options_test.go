// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseOptions(t *testing.T) {
	o, err := ParseOptions(nil)
	require.NoError(t, err)
	assert.Equal(t, 50, o.ClaimWorkers)
	assert.Equal(t, "random", o.DefaultStrategy)
	assert.False(t, o.NetworkData, "another provider usually serves it")
	for argument, says := range map[string]string{
		"--claim-workers=0":                       "--claim-workers=0: write 1 or more",
		"--pool-workers=-1":                       "--pool-workers=-1: write 1 or more",
		"--data-workers=0":                        "--data-workers=0: write 1 or more",
		"--log-level=loud":                        "--log-level=loud: write debug, info or error",
		"--default-allocation-strategy=whichever": "--default-allocation-strategy=whichever: write random or sequential",
		"--pool-status-interval=-1s":              "--pool-status-interval=-1s: write a time that is not negative",
		"--inventory-url=inventory:8080":          "--inventory-url: write a URL such as https://inventory.example.com, without credentials",
		"--inventory-url=http://a:b@inventory":    "--inventory-url: write a URL such as https://inventory.example.com, without credentials",
		"--webhook-bind-address=9443":             "--webhook-bind-address=9443: write an address such as :9443, or 0",
		"--webhook-bind-address=:9443":            "--webhook-bind-address: add --network-data, whose kinds are converted",
		"--webhook-url=http://127.0.0.1:9443":     "--webhook-url=http://127.0.0.1:9443: write a URL without path such as https://127.0.0.1:9443",
		"run":                                     `unexpected argument "run": all settings are flags`,
	} {
		_, err := ParseOptions([]string{argument})
		require.ErrorContains(t, err, says)
	}
}

func TestCheckSaysWhenItCouldNotLook(t *testing.T) {
	var out, problems bytes.Buffer
	assert.Equal(t, 2, Check(t.Context(), []string{"--kubeconfig=/does/not/exist"}, &out, &problems))
	assert.Contains(t, problems.String(), "reading the kubeconfig")
	assert.Empty(t, out.String())
}
