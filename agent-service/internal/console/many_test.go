// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console"
)

// TestTheNewestOfMoreThanAThousandClustersIsThere, in the list of those that machines can be bound to. Home counts all.
func TestTheNewestOfMoreThanAThousandClustersIsThere(t *testing.T) {
	const clusters = 1001
	s := newSite(t)
	admin := s.token("root", "admins")
	var older errgroup.Group
	older.SetLimit(8)
	for i := range clusters - 1 {
		older.Go(func() error {
			s.makeCluster(admin, fmt.Sprintf("older-%d", i))
			return nil
		})
	}
	require.NoError(t, older.Wait())
	s.makeCluster(admin, "newest")
	var env api.InfraEnv
	require.NoError(t, json.Unmarshal(s.call("Authorization", "Bearer "+admin, "POST", "/infra-envs", map[string]any{"name": "rack", "pull_secret": `{"auths":{}}`}), &env))
	s.report(s.imageToken(admin, env.ID.String()), env.ID.String(), env.ID.String(), map[string]any{"hostname": "node-1"})

	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	p := &person{&http.Client{Jar: jar}, t, "http://" + s.address + console.Base, ""}
	response, err := p.PostForm(p.base+"/sign-in", url.Values{"token": {admin}})
	status, home := p.read(response, err)
	require.Equal(t, http.StatusOK, status, home)
	assert.Contains(t, home, fmt.Sprintf(`<span class="value">%d</span> <span>Clusters</span>`, clusters))
	for _, path := range []string{"/machines", "/machines/" + env.ID.String() + "/" + env.ID.String()} {
		_, page := p.read(p.Get(p.base + path))
		assert.Contains(t, page, ">newest</option>", path)
		assert.Contains(t, page, ">older-0</option>", path)
	}
}
