// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/firstboot"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	"github.com/muster-io/muster/agent-service/internal/validate"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/apis/tracing"
)

// Options are the service's settings, one per flag.
type Options struct {
	Process
	KubeOptions
	ImageURL         string
	CAFile           string
	AgentDirectory   string
	Database         string
	DatabaseFile     string
	TokenKey         string
	OSImages         string
	HostMinimums     string
	RegistryImages   string
	InstallerImage   string
	AgentImage       string
	DisconnectAfter  time.Duration
	EventRetention   time.Duration
	OIDCIssuer       string
	OIDCAudience     string
	OIDCUserClaim    string
	OIDCOrganization string
	OIDCAdminGroup   string
	OIDCViewerGroup  string
	OIDCKeyFile      string
	OIDCKeysURL      string
	Console          bool
	ConsoleOptions

	// kube is the client configuration of tests, and through is what they put before the store.
	kube    *rest.Config
	through func(transaction.Store) transaction.Store
}

// ParseOptions reads options from arguments, without the program's name, and validates them. flag.ErrHelp is returned
// when help was asked for.
func ParseOptions(arguments []string) (Options, error) {
	var o Options
	if err := operator.ParseFlags("agent-service", arguments, o.bind); err != nil {
		return o, err
	}
	if o.ImageURL == "" {
		o.findLiveImages()
	}
	return o, o.Validate()
}

func (o *Options) bind(flags *flag.FlagSet) {
	o.Process.bind(flags)
	o.KubeOptions.bind(flags)
	tracing.Usage(flags)
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8090", "address of REST v2, its documentation (/docs), /healthz and /readyz; :8090 for all interfaces")
	flags.StringVar(&o.BaseURL, "base-url", "http://localhost:8090", "URL at which hosts reach this service, without a slash at the end")
	flags.StringVar(&o.ImageURL, "image-url", "", "URL of discovery images where another process serves them (agent-service images), without a slash at the end; empty for this one")
	flags.StringVar(&o.CAFile, "ca-file", "", "PEM certificates of the private CAs of this service and of the server of images: every image and installed system trusts them")
	flags.StringVar(&o.AgentDirectory, "agent-directory", "", "directory with agents for machines whose live image has none, such as CoreOS: agent-x86_64, agent-aarch64, …, or agent for the architecture of this machine; empty for the directory of this program")
	flags.StringVar(&o.Database, "database", "agent-service.db", "file of the SQLite database, or postgres://… for several replicas")
	flags.StringVar(&o.DatabaseFile, "database-file", "", "file that holds the value of --database, where that is a secret")
	flags.StringVar(&o.TokenKey, "token-key", "agent-service.key", "file of the key that signs tokens of hosts, made when it is missing; the same for all replicas")
	flags.StringVar(&o.OSImages, "os-images", "", "file with the images that are installed: a JSON list of {version, cpuArchitecture, url, sha256, compression, firstBoot, firstBootTemplate, controlPlane}")
	flags.StringVar(&o.HostMinimums, "host-minimums", "", "file with the minimal hardware of hosts: a JSON object of {cpus, memoryGiB, diskGB} by role (auto-assign, worker, master, arbiter); roles left out have the documented minimums")
	flags.StringVar(&o.RegistryImages, "registry-images", "", "container images, comma separated, that hosts must be able to pull before they are installed")
	flags.StringVar(&o.InstallerImage, "installer-image", "", "container image that agents of assisted-service run to install; without it, hosts with such agents are bound and not installed")
	flags.StringVar(&o.AgentImage, "agent-image", "", "container image that agents of assisted-service run after their registration; empty for the one that they registered with")
	flags.DurationVar(&o.DisconnectAfter, "disconnect-after", 3*time.Minute, "time without a poll after which a host counts as disconnected")
	flags.DurationVar(&o.EventRetention, "event-retention", 30*24*time.Hour, "time that events are kept after they occurred last; 0 for ever")
	flags.BoolVar(&o.Console, "console", false, "serve screens for people in a browser, at /console of the address of REST; they show and do what a person's token allows")
	o.ConsoleOptions.bind(flags)
	flags.StringVar(&o.OIDCIssuer, "oidc-issuer", "none", "URL of the OpenID Connect issuer whose tokens people use; kubernetes for tokens that the cluster knows; none disables authentication of users, for development only")
	flags.StringVar(&o.OIDCAudience, "oidc-audience", "", "audience that tokens must have; empty for any, or with kubernetes for the cluster's own")
	flags.StringVar(&o.OIDCUserClaim, "oidc-user-claim", "", "claim that names the user; empty for sub; an email that the issuer says is not verified is refused")
	flags.StringVar(&o.OIDCOrganization, "oidc-organization-claim", "", "claim that names the user's organization; empty for none")
	flags.StringVar(&o.OIDCAdminGroup, "oidc-admin-group", "", "entry of the claim groups that makes administrators; empty for none")
	flags.StringVar(&o.OIDCViewerGroup, "oidc-viewer-group", "", "entry of the claim groups that makes accounts read-only, those of --oidc-admin-group among them: they change nothing and download neither images nor credentials; empty for none")
	flags.StringVar(&o.OIDCKeyFile, "oidc-key-file", "", "file of the issuer's public key; empty to ask the issuer")
	flags.StringVar(&o.OIDCKeysURL, "oidc-keys-url", "", "URL of the issuer's key set; empty to ask the issuer")
}

// Validate says everything that is wrong with the options.
func (o *Options) Validate() error {
	errs := o.validate()
	if o.ImageURL != "" && !isAddress(o.ImageURL) {
		errs = append(errs, fmt.Errorf("--image-url=%s: write http(s)://host:port without a slash at the end", o.ImageURL))
	}
	if o.DisconnectAfter < 10*time.Second {
		errs = append(errs, fmt.Errorf("--disconnect-after=%s: write 10s or more", o.DisconnectAfter))
	}
	if o.EventRetention != 0 && o.EventRetention < time.Hour { // repetitions within the hour are counted with an event
		errs = append(errs, fmt.Errorf("--event-retention=%s: write 1h or more, or 0 to keep events for ever", o.EventRetention))
	}
	if o.OIDCIssuer == "" {
		errs = append(errs, errors.New("--oidc-issuer: write the issuer's URL, kubernetes, or none"))
	}
	return errors.Join(append(errs, o.validateConsole()...)...)
}

// authorities are the certificates that hosts trust the service by, beside those that they know.
func (o *Options) authorities() (string, error) {
	if o.CAFile == "" {
		return "", nil
	}
	content, err := os.ReadFile(o.CAFile)
	if err != nil {
		return "", fmt.Errorf("reading --ca-file: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(content) {
		return "", fmt.Errorf("reading --ca-file: %s holds no certificate", o.CAFile)
	}
	return string(content), nil
}

// database is the address of the database.
func (o *Options) database() (string, error) {
	if o.DatabaseFile == "" {
		return o.Database, nil
	}
	content, err := os.ReadFile(o.DatabaseFile)
	if err != nil {
		return "", fmt.Errorf("reading the address of the database: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// osImages are the images that are installed.
func (o *Options) osImages() ([]agentproto.OSImage, error) {
	if o.OSImages == "" {
		return nil, nil
	}
	content, err := os.ReadFile(o.OSImages)
	if err != nil {
		return nil, fmt.Errorf("reading the list of images: %w", err)
	}
	var listed []struct {
		agentproto.OSImage
		Template string `json:"firstBootTemplate"`
	}
	if err := json.Unmarshal(content, &listed); err != nil {
		return nil, fmt.Errorf("reading the list of images in %s: %w", o.OSImages, err)
	}
	images := make([]agentproto.OSImage, 0, len(listed))
	for _, image := range listed {
		if image.Version == "" || image.URL == "" || len(image.SHA256) != 64 {
			return nil, fmt.Errorf("the list of images in %s: each needs version, url and sha256 of 64 hexadecimal digits", o.OSImages)
		}
		if image.Template != "" {
			if image.OSImage.Template, err = readTemplate(o.OSImages, image.Template); err != nil {
				return nil, fmt.Errorf("the list of images in %s: firstBootTemplate of version %s: %w", o.OSImages, image.Version, err)
			}
		}
		images = append(images, image.OSImage)
	}
	return images, nil
}

// readTemplate reads a file that a list names; a relative path begins where the list is.
func readTemplate(list, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(list), path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return string(content), firstboot.CheckTemplate(string(content))
}

// hostMinimums are the minimal hardware of hosts.
func (o *Options) hostMinimums() (validate.Minimums, error) {
	minimums := maps.Clone(validate.DefaultMinimums)
	if o.HostMinimums == "" {
		return minimums, nil
	}
	content, err := os.ReadFile(o.HostMinimums)
	if err != nil {
		return nil, fmt.Errorf("reading the host minimums: %w", err)
	}
	if err := json.Unmarshal(content, &minimums); err != nil {
		return nil, fmt.Errorf("reading the host minimums in %s: %w", o.HostMinimums, err)
	}
	for role := range minimums {
		if _, known := validate.DefaultMinimums[role]; !known {
			return nil, fmt.Errorf("host minimums in %s: there is no role %q", o.HostMinimums, role)
		}
	}
	return minimums, nil
}
