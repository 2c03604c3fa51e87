// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app wires the operator together.
package app

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/muster-io/muster/apis/operator"
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
	operator.Settings
	// Namespace holds the reservations of boot MACs, and the leader's Lease where --leader-election-namespace names no other.
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

	env func(string) string
}

// Parse reads the settings from the command line.
func Parse(args []string, getenv func(string) string) (Options, error) {
	o := Options{env: getenv}
	if err := operator.ParseFlags(name, args, o.Bind, o.bind, tracing.Usage); err != nil {
		return o, err
	}
	o.LeaderElectionNamespace = cmp.Or(o.LeaderElectionNamespace, o.Namespace)
	return o, o.Validate()
}

func (o *Options) bind(fs *flag.FlagSet) {
	fs.StringVar(&o.Namespace, "namespace", cmp.Or(o.env("POD_NAMESPACE"), "muster-discovery-operator"),
		"namespace of the reservations of boot MACs, and of the lease if --leader-election-namespace is empty")
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
}

// Validate says everything that is wrong with the settings.
func (o *Options) Validate() error {
	errs := []error{o.Settings.Validate()}
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
