// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironictest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
)

// Keystone is a running instance of its own. Its user and its project are called admin.
type Keystone struct {
	// AuthURL is where it gives tokens.
	AuthURL  string
	password string
	dir      string
	env      []string
}

// StartWithKeystone starts a Keystone, and an Ironic that asks it about tokens. Both end with the test. Where the packages cannot
// be had the test is skipped with a sentence that says so, or fails when CI is true.
func StartWithKeystone(t testing.TB, name, password string) (*Ironic, *Keystone) {
	t.Helper()
	i := prepare(t, name)
	k := &Keystone{password: password, dir: filepath.Join(t.TempDir(), "keystone-"+name)}
	k.env = append(os.Environ(), "KEYSTONE_DIR="+k.dir, "KEYSTONE_PORT="+porttest.Free(t), "KEYSTONE_PASSWORD="+password, "IRONIC_WAIT="+patience)
	t.Cleanup(func() { run(t, k.env, "", "keystone", "down", "--purge") })
	out, ok := run(t, k.env, "", "keystone", "up")
	if !ok {
		needtest.Part(t, false, "no real Keystone: "+strings.TrimSpace(out))
	}
	_, url, _ := strings.Cut(strings.TrimSpace(out), "=")
	k.AuthURL = url
	if err := os.MkdirAll(filepath.Join(i.Dir, "ironic.d"), 0o700); err != nil {
		t.Fatalf("configuring Ironic: %v", err)
	}
	// Tokens are not remembered, so that one that is not valid any more is seen at once.
	config := fmt.Sprintf("[DEFAULT]\nauth_strategy = keystone\n[keystone_authtoken]\nwww_authenticate_uri = %[1]s\nauth_url = %[1]s\n"+
		"auth_type = password\nusername = admin\npassword = %[2]s\nproject_name = admin\nuser_domain_name = Default\nproject_domain_name = Default\n"+
		"token_cache_time = -1\n", url, strings.ReplaceAll(password, "$", "$$"))
	if err := os.WriteFile(filepath.Join(i.Dir, "ironic.d", "keystone.conf"), []byte(config), 0o600); err != nil {
		t.Fatalf("configuring Ironic: %v", err)
	}
	i.Up(t)
	return i, k
}

// Expire makes all tokens invalid that were given.
func (k *Keystone) Expire(t testing.TB) {
	t.Helper()
	if out, ok := run(t, k.env, "", "keystone", "expire"); !ok {
		t.Fatalf("expiring tokens: %s", out)
	}
}

// Given is how many tokens were given.
func (k *Keystone) Given(t testing.TB) int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(k.dir, "keystone.out"))
	if err != nil {
		t.Fatalf("reading Keystone's log: %v", err)
	}
	return strings.Count(string(log), `"POST /v3/auth/tokens HTTP/1.1" 201`)
}

// Config is how to reach an Ironic with tokens of this Keystone.
func (k *Keystone) Config(i *Ironic) ironic.Config {
	c := i.Config()
	c.Auth, c.Username, c.Password = ironic.AuthKeystone, "admin", k.password
	c.Keystone = ironic.Keystone{AuthURL: k.AuthURL, UserDomain: "Default", Project: "admin", ProjectDomain: "Default"}
	return c
}
