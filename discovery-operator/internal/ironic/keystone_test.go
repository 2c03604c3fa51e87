// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// TestKeystone speaks to a real Keystone, and to a real Ironic that asks it who comes.
func TestKeystone(t *testing.T) {
	i, k := ironictest.StartWithKeystone(t, "tokens", password)
	client := func(t *testing.T, change ...func(*ironic.Config)) *ironic.Client {
		config := k.Config(i)
		for _, c := range change {
			c(&config)
		}
		c, err := ironic.New(config, nil)
		require.NoError(t, err)
		return c
	}
	t.Run("a token opens Ironic, and is used again", func(t *testing.T) {
		c := client(t)
		uuid, err := c.EnrolNode(t.Context(), "rack~one", hoststate.Access{Driver: "fake-hardware", PasswordKey: "fake_password", Password: "x"})
		require.NoError(t, err)
		given := k.Given(t)
		for range 3 {
			nodes, err := c.Nodes(t.Context(), "")
			require.NoError(t, err)
			require.Len(t, nodes, 1)
			assert.Equal(t, uuid, nodes[0].UUID)
		}
		assert.Equal(t, given, k.Given(t))
		k.Expire(t)
		_, err = c.Nodes(t.Context(), "")
		require.NoError(t, err, "a token that is not valid any more is replaced by the way")
		assert.Greater(t, k.Given(t), given)
		assert.False(t, c.Failing())
	})
	for name, change := range map[string]func(*ironic.Config){
		"a wrong password":   func(c *ironic.Config) { c.Password = "wr0ng-pass" },
		"an unknown user":    func(c *ironic.Config) { c.Username = "unknown" },
		"an unknown domain":  func(c *ironic.Config) { c.Keystone.UserDomain = "elsewhere" },
		"an unknown project": func(c *ironic.Config) { c.Keystone.Project = "elsewhere" },
	} {
		t.Run(name+" is reported without the password", func(t *testing.T) {
			c := client(t, change)
			_, err := c.Nodes(t.Context(), "")
			assert.Equal(t, inventory.ProblemCredentials, problem(t, err))
			assert.Contains(t, err.Error(), "Keystone")
			assert.NotContains(t, err.Error(), "wr0ng-pass")
			assert.NotContains(t, err.Error(), password)
			assert.True(t, c.Failing())
		})
	}
	t.Run("requests without a token are refused", func(t *testing.T) {
		c, err := ironic.New(i.Config(), nil)
		require.NoError(t, err)
		_, err = c.Nodes(t.Context(), "")
		assert.Equal(t, inventory.ProblemCredentials, problem(t, err))
	})
}

func TestKeystoneIsNotThere(t *testing.T) {
	c, err := ironic.New(ironic.Config{
		Endpoint: "http://127.0.0.1:1", Auth: ironic.AuthKeystone, Username: "admin", Password: password,
		Keystone: ironic.Keystone{AuthURL: "http://127.0.0.1:1/v3", UserDomain: "Default", Project: "admin", ProjectDomain: "Default"},
	}, nil)
	require.NoError(t, err)
	_, err = c.Nodes(t.Context(), "")
	assert.Equal(t, inventory.ProblemUnreachable, problem(t, err))
}

// TestATokenThatCannotBeRenewedSaysWhy: a Keystone that is away when a token has expired refuses no credentials.
func TestATokenThatCannotBeRenewedSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		renewal int
		want    inventory.Problem
	}{
		"Keystone is away":                  {http.StatusServiceUnavailable, inventory.ProblemUnreachable},
		"Keystone is broken":                {http.StatusInternalServerError, inventory.ProblemInvalid},
		"the password is not valid anymore": {http.StatusUnauthorized, inventory.ProblemCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			tokens := 0
			k := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/auth/tokens") {
					_, _ = w.Write([]byte(`{"versions":{"values":[{"id":"v3.14","status":"stable"}]}}`))
					return
				}
				if tokens++; tokens > 1 {
					w.WriteHeader(c.renewal)
					return
				}
				w.Header().Set("X-Subject-Token", "token")
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte(`{"token":{"catalog":[],"expires_at":"2030-01-01T00:00:00.000000Z"}}`))
			}))
			defer k.Close()
			i := newService(t, "1.96")
			i.mux.HandleFunc("GET /v1/nodes", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
			_, err := i.client(t, func(config *ironic.Config) {
				config.Auth, config.Username, config.Password = ironic.AuthKeystone, "admin", password
				config.Keystone = ironic.Keystone{AuthURL: k.URL + "/v3", UserDomain: "Default", Project: "admin", ProjectDomain: "Default"}
			}).Nodes(t.Context(), "")
			assert.Equal(t, c.want, problem(t, err), err)
			assert.Contains(t, err.Error(), "Keystone "+k.URL)
			assert.NotContains(t, err.Error(), password)
		})
	}
}

func TestKeystoneInASecretAndInTheEnvironment(t *testing.T) {
	c := ironic.FromSecret(ironic.Config{}, map[string][]byte{
		"username": []byte("admin"), "password": []byte(password), "authURL": []byte("http://k/v3\n"), "userDomainName": []byte("users\n"),
		"projectName": []byte("machines\n"), "projectDomainName": []byte("projects\n"),
	})
	env := map[string]string{
		"OS_AUTH_URL": "http://k/v3", "OS_USERNAME": "admin", "OS_PASSWORD": password, "OS_USER_DOMAIN_NAME": "users",
		"OS_PROJECT_NAME": "machines", "OS_PROJECT_DOMAIN_NAME": "projects",
	}
	e, err := ironic.FromEnvironment(func(key string) string { return env[key] }, func(string) ([]byte, error) { return nil, nil })
	require.NoError(t, err)
	assert.Equal(t, e.Keystone, c.Keystone)
	assert.Equal(t, ironic.AuthKeystone, e.Auth)
}
