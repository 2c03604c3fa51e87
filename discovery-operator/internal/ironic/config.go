// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Auth is how a service wants to be asked.
type Auth string

// Ways to authenticate.
const (
	AuthNone      Auth = "None"
	AuthHTTPBasic Auth = "HTTPBasic"
	AuthKeystone  Auth = "Keystone"
)

// Config says where Ironic is and how to get in. It holds secrets: print it with String only.
type Config struct {
	// Endpoint is the URL of the API, with or without a trailing v1/. User and password in it mean HTTP basic.
	Endpoint string
	// InspectorEndpoint is the URL of ironic-inspector; empty where Ironic discovers by itself.
	InspectorEndpoint string
	Auth              Auth
	Username          string
	Password          string
	Keystone          Keystone
	// Ramdisk is what machines boot to be inspected, cleaned and deployed.
	Ramdisk Ramdisk
	// CA is a PEM bundle that replaces the system's, if not empty.
	CA []byte
	// Cert and Key are a client certificate in PEM.
	Cert, Key []byte
	// Insecure accepts any certificate; SkipSAN checks the chain but not the name.
	Insecure, SkipSAN bool
	// Timeout bounds one request. 0 means 30 seconds.
	Timeout time.Duration
}

// Keystone is what Keystone needs besides user and password.
type Keystone struct {
	AuthURL, UserDomain, Project, ProjectDomain, Region string
}

// String names the endpoint without credentials.
func (c Config) String() string { return Redact(c.Endpoint) }

// GoString is String, so that no format verb prints a secret.
func (c Config) GoString() string { return c.String() }

// Fingerprint changes when anything in the configuration changes. It does not reveal it.
func (c Config) Fingerprint() string {
	type plain Config
	data, err := json.Marshal(plain(c)) //nolint:gosec // only a hash of it leaves this function
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Redact returns a URL without user, password, query and fragment.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// normal splits user and password off the endpoint, adds v1/ where it is missing, and checks the rest.
func (c Config) normal() (Config, error) {
	if c.Endpoint == "" {
		return c, inventory.Failf(inventory.ProblemNoEndpoint, "no Ironic endpoint is configured")
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return c, inventory.Failf(inventory.ProblemNoEndpoint, "the Ironic endpoint is not an http or https URL")
	}
	if u.User != nil {
		c.Username = u.User.Username()
		c.Password, _ = u.User.Password()
		c.Auth = AuthHTTPBasic
	}
	c.Endpoint = versioned(u)
	if c.InspectorEndpoint != "" {
		i, err := url.Parse(c.InspectorEndpoint)
		if err != nil || i.Host == "" || i.Scheme != "http" && i.Scheme != "https" {
			return c, inventory.Failf(inventory.ProblemNoEndpoint, "the inspector endpoint is not an http or https URL")
		}
		c.InspectorEndpoint = versioned(i)
	}
	if c.Auth == "" {
		c.Auth = AuthNone
	}
	if c.Auth == AuthHTTPBasic && (c.Username == "" || c.Password == "") {
		return c, inventory.Failf(inventory.ProblemNoSecret, "HTTP basic authentication needs a user and a password")
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	return c, nil
}

// normalEndpoint is one way to write an endpoint that can be written in several.
func normalEndpoint(raw string) string {
	u, err := url.Parse(raw)
	if raw == "" || err != nil || u.Host == "" {
		return raw
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; port != "" {
		u.Host = strings.TrimSuffix(u.Host, port)
	}
	return versioned(u)
}

func versioned(u *url.URL) string {
	path := strings.TrimRight(u.Path, "/")
	if !strings.HasSuffix(path, "/v1") {
		path += "/v1"
	}
	return u.Scheme + "://" + u.Host + path + "/"
}

func (c Config) httpClient(observe Observer) (*http.Client, error) {
	tc := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CA) > 0 {
		tc.RootCAs = x509.NewCertPool()
		if !tc.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, inventory.Failf(inventory.ProblemNoSecret, "the CA bundle for Ironic holds no certificate")
		}
	}
	if len(c.Cert) > 0 {
		pair, err := tls.X509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, inventory.Failf(inventory.ProblemNoSecret, "the client certificate for Ironic cannot be used with its key")
		}
		tc.Certificates = []tls.Certificate{pair}
	}
	switch {
	case c.Insecure:
		tc.InsecureSkipVerify = true // the administrator asked for it in so many words
	case c.SkipSAN:
		tc.InsecureSkipVerify = true // the chain is checked below, only the name is not
		tc.VerifyConnection = func(cs tls.ConnectionState) error { return verifyChain(cs, tc.RootCAs) }
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:     tc,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
	return &http.Client{
		Timeout:       c.Timeout,
		Transport:     &bounded{next: transport, observe: observe},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func verifyChain(cs tls.ConnectionState, roots *x509.CertPool) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the server sent no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range cs.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := cs.PeerCertificates[0].Verify(opts); err != nil {
		return fmt.Errorf("checking the certificate chain: %w", err)
	}
	return nil
}
