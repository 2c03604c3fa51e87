// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package webhookcert

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestACertificateIsReplacedInTimeAndTheOneBeforeStaysTrusted(t *testing.T) {
	hosts := []string{"check.system.svc", "127.0.0.1"}
	now := time.Now()
	data, err := issue(now, nil, hosts)
	require.NoError(t, err)
	require.NotNil(t, usable(now, data, hosts))
	assert.NotNil(t, usable(now.Add(lifetime/2), data, hosts))
	assert.Nil(t, usable(now.Add(lifetime*3/4), data, hosts), "a third of its life is left for telling everybody")
	assert.Nil(t, usable(now, data, []string{"elsewhere.system.svc"}), "it is for other names")
	assert.Nil(t, usable(now, nil, hosts))

	next, err := issue(now, data, hosts)
	require.NoError(t, err)
	assert.Equal(t, append(bytes.Clone(next[keyCert]), data[keyCert]...), next[keyCA])
	third, err := issue(now, next, hosts)
	require.NoError(t, err)
	assert.NotContains(t, string(third[keyCA]), string(data[keyCert]), "the bundle does not grow")
}

func TestACertificateIsValidWhereTheClockWasAhead(t *testing.T) {
	hosts := []string{"check.system.svc"}
	now := time.Now()
	data, err := issue(now.Add(lifetime/2), nil, hosts)
	require.NoError(t, err)
	pair := usable(now, data, hosts)
	require.NotNil(t, pair)
	assert.True(t, now.After(pair.Leaf.NotBefore), "API servers take it")

	data, err = issue(now.Add(2*lifetime), nil, hosts)
	require.NoError(t, err)
	assert.Nil(t, usable(now, data, hosts), "none takes it")
}
