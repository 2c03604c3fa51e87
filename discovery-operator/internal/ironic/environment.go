// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// FromEnvironment reads the settings that users of today's system have: IRONIC_ENDPOINT, IRONIC_INSPECTOR_ENDPOINT,
// METAL3_AUTH_ROOT_DIR (default /opt/metal3/auth, with the files ironic/username and ironic/password),
// IRONIC_CACERT_FILE, IRONIC_INSECURE, IRONIC_CLIENT_CERT_FILE, IRONIC_CLIENT_PRIVATE_KEY_FILE,
// IRONIC_SKIP_CLIENT_SAN_VERIFY; and for Keystone OS_AUTH_URL, OS_USERNAME, OS_PASSWORD, OS_USER_DOMAIN_NAME,
// OS_PROJECT_NAME, OS_PROJECT_DOMAIN_NAME, OS_REGION_NAME. Files are read each time, so that a rotated secret is used.
func FromEnvironment(getenv func(string) string, readFile func(string) ([]byte, error)) (Config, error) {
	c := Config{
		Endpoint:          getenv("IRONIC_ENDPOINT"),
		InspectorEndpoint: getenv("IRONIC_INSPECTOR_ENDPOINT"),
		Insecure:          isTrue(getenv("IRONIC_INSECURE")),
		SkipSAN:           isTrue(getenv("IRONIC_SKIP_CLIENT_SAN_VERIFY")),
	}
	read := func(path string) []byte {
		if path == "" {
			return nil
		}
		data, err := readFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return data
	}
	c.CA = read(getenv("IRONIC_CACERT_FILE"))
	c.Cert = read(getenv("IRONIC_CLIENT_CERT_FILE"))
	c.Key = read(getenv("IRONIC_CLIENT_PRIVATE_KEY_FILE"))
	if path := getenv("IRONIC_CACERT_FILE"); path != "" && len(c.CA) == 0 {
		return c, inventory.Failf(inventory.ProblemNoSecret, "the file that IRONIC_CACERT_FILE names cannot be read")
	}
	if authURL := getenv("OS_AUTH_URL"); authURL != "" {
		c.Auth, c.Username, c.Password = AuthKeystone, getenv("OS_USERNAME"), getenv("OS_PASSWORD")
		c.Keystone = Keystone{
			AuthURL: authURL, UserDomain: getenv("OS_USER_DOMAIN_NAME"), Project: getenv("OS_PROJECT_NAME"),
			ProjectDomain: getenv("OS_PROJECT_DOMAIN_NAME"), Region: getenv("OS_REGION_NAME"),
		}
		return c, nil
	}
	root := getenv("METAL3_AUTH_ROOT_DIR")
	if root == "" {
		root = "/opt/metal3/auth"
	}
	user := strings.TrimSpace(string(read(filepath.Join(root, "ironic", "username"))))
	if user != "" {
		c.Auth, c.Username = AuthHTTPBasic, user
		c.Password = strings.TrimSpace(string(read(filepath.Join(root, "ironic", "password"))))
	}
	return c, nil
}

// FromSecret completes a configuration with the keys of a Secret: username, password, ca.crt, tls.crt, tls.key, and for
// Keystone authURL, userDomainName, projectName, projectDomainName, regionName.
func FromSecret(c Config, data map[string][]byte) Config {
	c.Username = strings.TrimSpace(string(data["username"]))
	c.Password = strings.TrimSpace(string(data["password"]))
	c.CA, c.Cert, c.Key = data["ca.crt"], data["tls.crt"], data["tls.key"]
	c.Keystone = Keystone{
		AuthURL: string(data["authURL"]), UserDomain: string(data["userDomainName"]), Project: string(data["projectName"]),
		ProjectDomain: string(data["projectDomainName"]), Region: string(data["regionName"]),
	}
	return c
}

func isTrue(s string) bool {
	switch strings.ToLower(s) {
	case "1", "true", "yes":
		return true
	default:
		return false
	}
}
