// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPathsMayEndWithASlash: assisted-service takes it away, and clients list /clusters/.
func TestPathsMayEndWithASlash(t *testing.T) {
	w := newTestEnv(t)
	olga := w.person("olga")
	cluster, env := w.cluster(olga, "c"), w.infraEnv(olga, "e")
	for _, path := range []string{"/clusters", "/infra-envs", "/clusters/" + cluster} {
		for _, query := range []string{"", "?owner=olga"} {
			got, want := w.call(olga, "GET", path+"/"+query, nil), w.call(olga, "GET", path+query, nil)
			assert.Equal(t, 200, got.status, got.raw)
			assert.Equal(t, want.raw, got.raw, path)
		}
	}
	assert.Equal(t, 201, w.call(olga, "PATCH", "/infra-envs/"+env+"/", map[string]any{}).status)
	assert.Equal(t, 404, w.call(olga, "GET", "/nothing/", nil).status)
	assert.Equal(t, 404, w.call(olga, "GET", "/", nil).status)
}
