// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/image"
	"github.com/muster-io/muster/apis/operator"
)

// Process are the settings of every process: of the service, and of one that serves discovery images alone.
type Process struct {
	Listen                 string
	TLSCertificate         string
	TLSKey                 string
	BaseURL                string
	LiveImages             string
	LiveImageCache         string
	HealthProbeBindAddress string
	MetricsBindAddress     string
	MetricsAuth            string
	Kubeconfig             string
	LogLevel               string
}

// Parse reads a command line, without the program's name: that of the service or, after the word images, of a process that serves discovery images alone.
func Parse(arguments []string) (run func(context.Context) error, err error) {
	if len(arguments) > 0 && arguments[0] == "images" {
		o, err := parseImageOptions(arguments[1:])
		return func(ctx context.Context) error { return runImages(ctx, o) }, err
	}
	o, err := ParseOptions(arguments)
	return func(ctx context.Context) error { return Run(ctx, o) }, err
}

func (p *Process) bind(flags *flag.FlagSet) {
	flags.StringVar(&p.TLSCertificate, "tls-certificate", "", "file of the certificate; empty to serve without TLS")
	flags.StringVar(&p.TLSKey, "tls-key", "", "file of the certificate's key")
	flags.StringVar(&p.LiveImages, "live-images", "", "file with the live images that discovery images are made of: a JSON list of {version, cpuArchitecture, url, sha256}; the first of an architecture is its default, and files are found from where the list is; empty for our own live image, if live/live.json, which make live-image makes, is beside this program, or in ../share/muster, as in the container image; a service with --image-url only names the version that was chosen by it")
	flags.StringVar(&p.LiveImageCache, "live-image-cache", "live-images", "directory where live images are kept")
	flags.StringVar(&p.HealthProbeBindAddress, "health-probe-bind-address", "0", "address of /healthz and /readyz beside --listen, without TLS; 0 for none")
	flags.StringVar(&p.MetricsBindAddress, "metrics-bind-address", "127.0.0.1:8091", "address of /metrics; 0 for none")
	flags.StringVar(&p.MetricsAuth, "metrics-auth", "none", "authentication of metrics: none for plain HTTP without authentication; kubernetes for TLS, and users who may get /metrics in the cluster")
	flags.StringVar(&p.Kubeconfig, "kubeconfig", "", operator.KubeconfigHelp)
	flags.StringVar(&p.LogLevel, "log-level", "info", operator.LogLevelHelp)
}

func (p *Process) validate() []error {
	errs := []error{operator.ValidateLogLevel(p.LogLevel)}
	if (p.TLSCertificate == "") != (p.TLSKey == "") {
		errs = append(errs, errors.New("--tls-certificate and --tls-key: give both or none"))
	}
	if !isAddress(p.BaseURL) {
		errs = append(errs, fmt.Errorf("--base-url=%s: write http(s)://host:port without a slash at the end", p.BaseURL))
	}
	if !slices.Contains([]string{"none", "kubernetes"}, p.MetricsAuth) {
		errs = append(errs, fmt.Errorf("--metrics-auth=%s: write none or kubernetes", p.MetricsAuth))
	}
	return errs
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && !strings.HasSuffix(text, "/")
}

// findLiveImages takes our own live image where no list is given, if it is there.
func (p *Process) findLiveImages() {
	if program, err := os.Executable(); p.LiveImages == "" && err == nil {
		p.LiveImages = ownLiveImages(program)
	}
}

// ownLiveImages is the list of our own live image, which is beside a program or, in the container image, in its share; empty where it is not.
func ownLiveImages(program string) string {
	for _, at := range []string{"live", filepath.Join("..", "share", "muster", "live")} {
		list := filepath.Join(filepath.Dir(program), at, "live.json")
		if _, err := os.Stat(list); err == nil {
			return list
		}
	}
	return ""
}

// liveImages are what discovery images are made of.
func (p *Process) liveImages() ([]image.Version, error) {
	if p.LiveImages == "" {
		return nil, nil
	}
	content, err := os.ReadFile(p.LiveImages)
	if err != nil {
		return nil, fmt.Errorf("reading the list of live images: %w", err)
	}
	var versions []image.Version
	if err := json.Unmarshal(content, &versions); err != nil {
		return nil, fmt.Errorf("reading the list of live images in %s: %w", p.LiveImages, err)
	}
	for i, v := range versions {
		versions[i].Architecture = hardware.Architecture(v.Architecture)
		if v.Name == "" || v.Architecture == "" || v.URL == "" || len(v.SHA256) != 64 {
			return nil, fmt.Errorf("the list of live images in %s: each needs version, cpuArchitecture, url and sha256 of 64 hexadecimal digits", p.LiveImages)
		}
		if !strings.Contains(v.URL, "://") && !filepath.IsAbs(v.URL) {
			versions[i].URL = filepath.Join(filepath.Dir(p.LiveImages), v.URL)
		}
	}
	return versions, nil
}
