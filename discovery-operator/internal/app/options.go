// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app wires the operator together.
package app

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/apis/webhookcert"
	"github.com/muster-io/muster/discovery-operator/internal/controller/autoscale"
)

// Where machines come from when a resource names no Ironic.
const (
	ProvisionerDemo   = "demo"
	ProvisionerIronic = "ironic"
)

// Options are the settings of the operator.
type Options struct {
	// Kubeconfig is the path of a kubeconfig; empty means the cluster that the operator runs in.
	Kubeconfig string
	// LeaderElect lets several replicas run, one of them acting.
	LeaderElect bool
	// MetricsBindAddress serves metrics with authentication over TLS; "0" serves none.
	MetricsBindAddress string
	// HealthProbeBindAddress serves /healthz and /readyz; "0" serves none.
	HealthProbeBindAddress string
	// LogLevel is debug, info or error.
	LogLevel string
	// Namespace holds the leader's Lease and the reservations of boot MACs.
	Namespace string
	// Provisioner is demo or ironic.
	Provisioner string
	// IronicNamespaces are those whose resources share Ironics, and may use the operator's own; "*" is all. None given means that each Ironic is
	// for one namespace, that of the oldest resource.
	IronicNamespaces []string
	// ManageHosts makes this operator own the whole early life of hosts. Without it, another operator does.
	ManageHosts bool
	// AutoscaleToHosts makes annotated MachineDeployments and MachineSets of Cluster API follow the number of hosts.
	AutoscaleToHosts bool
	// WebhookBindAddress serves the admission check on hosts; "0" serves none. WebhookCertDir has its tls.crt and tls.key, which are
	// read again when they change; when it is empty the operator makes a certificate and tells the API server of it, and of WebhookURL
	// where the check has no Service.
	WebhookBindAddress, WebhookCertDir, WebhookURL string
	// DemoMachines is how many machines the demo's rack powers up, DemoInterval the time between two of them.
	DemoMachines int
	DemoInterval time.Duration

	level zapcore.Level
	env   func(string) string
}

// Parse reads the settings from the command line.
func Parse(args []string, getenv func(string) string) (Options, error) {
	o := Options{env: getenv}
	fs := flag.NewFlagSet("discovery-operator", flag.ContinueOnError)
	fs.StringVar(&o.Kubeconfig, "kubeconfig", getenv("KUBECONFIG"), "path of a kubeconfig; empty: the cluster that the operator runs in")
	fs.BoolVar(&o.LeaderElect, "leader-elect", false, "enable leader election: one of several replicas reconciles")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", ":8443", "address of the metrics, authenticated and over TLS; 0: none")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "address of the probes; 0: none")
	fs.StringVar(&o.LogLevel, "log-level", "info", "debug, info or error")
	fs.StringVar(&o.Namespace, "namespace", first(getenv("POD_NAMESPACE"), "muster-discovery-operator"),
		"namespace of the leader's Lease and of the reservations of boot MACs")
	fs.StringVar(&o.Provisioner, "provisioner", ProvisionerIronic,
		"where machines come from when a resource names no Ironic: ironic (IRONIC_ENDPOINT and the like), or demo (a rack in memory, with machines that do not exist)")
	fs.Func("ironic-namespaces", "namespaces, separated by commas, or *, whose BareMetalHostDiscoveries share Ironics and may use the operator's own;\n"+
		"without it each Ironic is for one namespace, that of the oldest resource",
		func(list string) error {
			o.IronicNamespaces = strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
			return nil
		})
	fs.BoolVar(&o.ManageHosts, "manage-hosts", false, "manage discovered hosts: registering, inspecting, powering and deleting; disable it where another operator manages BareMetalHosts")
	fs.BoolVar(&o.AutoscaleToHosts, "autoscale-to-hosts", false,
		"make MachineDeployments and MachineSets that have the annotation "+autoscale.Annotation+" follow the number of hosts")
	fs.StringVar(&o.WebhookBindAddress, "webhook-bind-address", "0", "address of the admission check on hosts, over TLS; 0: none")
	fs.StringVar(&o.WebhookCertDir, "webhook-cert-dir", "",
		"directory with tls.crt and tls.key of the admission check; without it the operator makes them and tells the API server")
	fs.StringVar(&o.WebhookURL, "webhook-url", "", "where the API server reaches the admission check, such as https://127.0.0.1:9443; without it, at the Service")
	fs.IntVar(&o.DemoMachines, "demo-machines", 8, "how many machines the demo's rack powers up")
	fs.DurationVar(&o.DemoInterval, "demo-interval", 3*time.Second, "time between two machines of the demo's rack")
	buildinfo.Flag(fs)
	tracing.Usage(fs)
	if err := fs.Parse(args); err != nil {
		return o, fmt.Errorf("reading the command line: %w", err)
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: all settings are flags", fs.Arg(0))
	}
	return o, o.Validate()
}

// Validate completes the settings and says what is wrong with them.
func (o *Options) Validate() error {
	var errs []error
	if err := o.level.UnmarshalText([]byte(o.LogLevel)); err != nil {
		errs = append(errs, fmt.Errorf("--log-level %q: use debug, info or error", o.LogLevel))
	}
	if o.Provisioner != ProvisionerDemo && o.Provisioner != ProvisionerIronic {
		errs = append(errs, fmt.Errorf("--provisioner %q: use demo or ironic", o.Provisioner))
	}
	if o.Namespace == "" {
		errs = append(errs, errors.New("--namespace is empty: name the namespace of the operator"))
	}
	if _, _, err := o.webhook(); err != nil {
		errs = append(errs, err)
	}
	if u, err := url.Parse(o.WebhookURL); o.WebhookURL != "" && (err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "") {
		errs = append(errs, fmt.Errorf("--webhook-url %q: use a URL without path such as https://127.0.0.1:9443", o.WebhookURL))
	}
	if o.DemoMachines < 0 || o.DemoInterval <= 0 {
		errs = append(errs, errors.New("--demo-machines and --demo-interval have to be positive"))
	}
	return errors.Join(errs...)
}

// webhook splits the address of the admission check. The port is 0 when there is none.
func (o *Options) webhook() (host string, port int, err error) {
	return webhookcert.SplitAddress(o.WebhookBindAddress)
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
