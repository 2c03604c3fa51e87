// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// FromEnvironment reads the settings that users of the Baremetal Operator have: IRONIC_ENDPOINT, IRONIC_INSPECTOR_ENDPOINT,
// METAL3_AUTH_ROOT_DIR (default /opt/metal3/auth, with the files ironic/username and ironic/password),
// IRONIC_CACERT_FILE, IRONIC_INSECURE, IRONIC_CLIENT_CERT_FILE, IRONIC_CLIENT_PRIVATE_KEY_FILE,
// IRONIC_SKIP_CLIENT_SAN_VERIFY; DEPLOY_KERNEL_URL, DEPLOY_RAMDISK_URL, DEPLOY_ISO_URL, IRONIC_EXTERNAL_URL_V6; and for Keystone OS_AUTH_URL,
// OS_USERNAME, OS_PASSWORD, OS_USER_DOMAIN_NAME, OS_PROJECT_NAME, OS_PROJECT_DOMAIN_NAME, OS_REGION_NAME. The files of certificates have
// the places of the Baremetal Operator where no variable names them. Files are read each time, so that a rotated secret is used.
func FromEnvironment(getenv func(string) string, readFile func(string) ([]byte, error)) (Config, error) {
	c := Config{
		Endpoint:          getenv("IRONIC_ENDPOINT"),
		InspectorEndpoint: getenv("IRONIC_INSPECTOR_ENDPOINT"),
		Insecure:          isTrue(getenv("IRONIC_INSECURE")),
		SkipSAN:           isTrue(getenv("IRONIC_SKIP_CLIENT_SAN_VERIFY")),
		Ramdisk: Ramdisk{
			Kernel: getenv("DEPLOY_KERNEL_URL"), Initramfs: getenv("DEPLOY_RAMDISK_URL"), ISO: getenv("DEPLOY_ISO_URL"),
			ExternalV6: getenv("IRONIC_EXTERNAL_URL_V6"),
		},
	}
	read := func(path string) []byte {
		data, err := readFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return data
	}
	named := func(key, usual string) string { return cmp.Or(getenv(key), usual) }
	c.CA = read(named("IRONIC_CACERT_FILE", "/opt/metal3/certs/ca/tls.crt"))
	c.Cert = read(named("IRONIC_CLIENT_CERT_FILE", "/opt/metal3/certs/client/tls.crt"))
	c.Key = read(named("IRONIC_CLIENT_PRIVATE_KEY_FILE", "/opt/metal3/certs/client/tls.key"))
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
	root := named("METAL3_AUTH_ROOT_DIR", "/opt/metal3/auth")
	user := strings.TrimSpace(string(read(filepath.Join(root, "ironic", "username"))))
	if user != "" {
		c.Auth, c.Username = AuthHTTPBasic, user
		c.Password = strings.TrimSpace(string(read(filepath.Join(root, "ironic", "password"))))
	}
	return c, nil
}

// FromSecret completes a configuration with the keys of a Secret: username, password, ca.crt, tls.crt, tls.key, and for
// Keystone authURL, userDomainName, projectName, projectDomainName, regionName. White space around a value is left out.
func FromSecret(c Config, data map[string][]byte) Config {
	text := func(key string) string { return strings.TrimSpace(string(data[key])) }
	c.Username, c.Password = text("username"), text("password")
	c.CA, c.Cert, c.Key = data["ca.crt"], data["tls.crt"], data["tls.key"]
	c.Keystone = Keystone{
		AuthURL: text("authURL"), UserDomain: text("userDomainName"), Project: text("projectName"),
		ProjectDomain: text("projectDomainName"), Region: text("regionName"),
	}
	return c
}

// Unused returns the settings of the Baremetal Operator that are set and mean nothing here: those of an operator that writes images, those of the
// ramdisk where another operator manages hosts, and a kernel or ramdisk without the other.
func Unused(getenv func(string) string, manages bool) []string {
	keys := []string{"BMO_CONCURRENCY", "LIVE_ISO_FORCE_PERSISTENT_BOOT_DEVICE", "PROVISIONING_LIMIT", "WATCH_NAMESPACE"}
	switch pair := []string{"DEPLOY_KERNEL_URL", "DEPLOY_RAMDISK_URL"}; {
	case !manages:
		keys = append(append(keys, pair...), "DEPLOY_ISO_URL", "IRONIC_EXTERNAL_URL_V6")
	case getenv(pair[0]) == "" || getenv(pair[1]) == "":
		keys = append(keys, pair...)
	}
	return slices.DeleteFunc(keys, func(key string) bool { return getenv(key) == "" })
}

func isTrue(s string) bool {
	switch strings.ToLower(s) {
	case "1", "true", "yes":
		return true
	default:
		return false
	}
}
