// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheAgentNeedsAToken(t *testing.T) {
	w := newTestEnv(t)
	env := w.infraEnv(w.person("one"), "one")
	const path = "/downloads/agent?arch=x86_64"
	assert.Equal(t, http.StatusUnauthorized, w.call(nil, http.MethodGet, path, nil).status)
	assert.Equal(t, http.StatusUnauthorized, w.call(caller{"X-Secret-Key": w.image(env) + "x"}, http.MethodGet, path, nil).status)
	for who, c := range map[string]caller{"a machine": {"X-Secret-Key": w.image(env)}, "a person": w.person("one")} {
		answer := w.call(c, http.MethodGet, path, nil)
		assert.Equal(t, http.StatusNotFound, answer.status, who)
		assert.Equal(t, "this service has no agents", answer.text("reason"), who)
	}
}
