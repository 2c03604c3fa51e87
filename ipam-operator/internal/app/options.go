// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
)

// Options are the operator's settings, one per flag.
type Options struct {
	operator.Settings
	Namespace          string
	WatchFilter        string
	ClaimWorkers       int
	PoolWorkers        int
	PoolStatusInterval time.Duration
	DefaultStrategy    string
	NetworkData        bool
	NameByHost         bool
	DataWorkers        int
	InventoryURL       string
	InventoryTokenFile string
	InventoryInterval  time.Duration
	WebhookBindAddress string
	WebhookURL         string
	WebhookNamespace   string

	// registerer lets more than one operator run in one process, for tests: it has the metrics of this one, and names need not be unique.
	registerer prometheus.Registerer
}

// ParseOptions reads options from arguments, without the program's name, and validates them. flag.ErrHelp is returned
// when help was asked for.
func ParseOptions(arguments []string) (Options, error) {
	var o Options
	if err := operator.ParseFlags("ipam-operator", arguments, o.Bind, o.bind, tracing.Usage); err != nil {
		return o, err
	}
	return o, o.Validate()
}

func (o *Options) bind(flags *flag.FlagSet) {
	flags.StringVar(&o.Namespace, "namespace", "", "reconcile objects of this namespace only; empty for all namespaces")
	flags.StringVar(&o.WatchFilter, "watch-filter", "", "serve only objects whose label "+ipamv1.WatchFilterLabel+" has this value; empty for all")
	flags.IntVar(&o.ClaimWorkers, "claim-workers", 50, "number of claims served in parallel")
	flags.IntVar(&o.PoolWorkers, "pool-workers", 10, "number of pools whose status is written in parallel")
	flags.DurationVar(&o.PoolStatusInterval, "pool-status-interval", time.Second, "minimum interval between status writes of one pool; slow writes extend it, up to ten times")
	flags.StringVar(&o.DefaultStrategy, "default-allocation-strategy", string(ipamv1.RandomAllocation),
		"random or sequential, for pools that state no allocationStrategy; the schema of IPPool makes new ones state sequential")
	flags.BoolVar(&o.NetworkData, "network-data", false, "serve Metal3DataTemplates, Metal3DataClaims and Metal3Data; enable only where no other provider serves them")
	flags.BoolVar(&o.NameByHost, "enable-bmh-name-based-preallocation", false,
		"name the IPClaims of network data after the BareMetalHost, so that preAllocations of a pool hold for a host")
	flags.StringVar(&o.InventoryURL, "inventory-url", "", "URL of an HTTP inventory that reports taken addresses and is notified of given ones; empty for none")
	flags.StringVar(&o.InventoryTokenFile, "inventory-token-file", "", "file with a bearer token for the inventory; empty for none")
	flags.DurationVar(&o.InventoryInterval, "inventory-interval", time.Minute, "interval between reads of the inventory for a pool")
	flags.StringVar(&o.WebhookBindAddress, "webhook-bind-address", "0", "address of the conversion of Metal3DataTemplates between their versions, over TLS; 0: none")
	flags.StringVar(&o.WebhookURL, "webhook-url", "", "where the API server reaches the conversion, such as https://127.0.0.1:9443; without it, at the Service")
	flags.StringVar(&o.WebhookNamespace, "webhook-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "muster-ipam-operator"),
		"namespace of the Service "+webhookName+" and of the Secret with its certificate, which the operator makes")
	flags.IntVar(&o.DataWorkers, "data-workers", 10, "number of Metal3Data rendered in parallel")
}

// filter selects the objects that this instance serves.
func (o *Options) filter() capi.WatchFilter { return capi.WatchFilter(o.WatchFilter) }

// Validate says everything that is wrong with the options.
func (o *Options) Validate() error {
	errs := []error{o.Settings.Validate()}
	if !slices.Contains([]string{string(ipamv1.RandomAllocation), string(ipamv1.SequentialAllocation)}, o.DefaultStrategy) {
		errs = append(errs, fmt.Errorf("--default-allocation-strategy=%s: write random or sequential", o.DefaultStrategy))
	}
	if problems := validation.IsValidLabelValue(o.WatchFilter); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--watch-filter=%s: write the value of a label: %s", o.WatchFilter, problems[0]))
	}
	if o.ClaimWorkers < 1 {
		errs = append(errs, fmt.Errorf("--claim-workers=%d: write 1 or more", o.ClaimWorkers))
	}
	if o.PoolWorkers < 1 {
		errs = append(errs, fmt.Errorf("--pool-workers=%d: write 1 or more", o.PoolWorkers))
	}
	if o.DataWorkers < 1 {
		errs = append(errs, fmt.Errorf("--data-workers=%d: write 1 or more", o.DataWorkers))
	}
	if o.InventoryURL != "" {
		if at, err := url.Parse(o.InventoryURL); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
			errs = append(errs, errors.New("--inventory-url: write a URL such as https://inventory.example.com, without credentials"))
		}
		if o.InventoryInterval < time.Second {
			errs = append(errs, fmt.Errorf("--inventory-interval=%s: write 1s or more", o.InventoryInterval))
		}
	}
	if err := o.validateWebhook(); err != nil {
		errs = append(errs, err)
	}
	if o.PoolStatusInterval < 0 {
		errs = append(errs, fmt.Errorf("--pool-status-interval=%s: write a time that is not negative", o.PoolStatusInterval))
	}
	return errors.Join(errs...)
}
