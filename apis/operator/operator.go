// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator is the wiring that all operators have alike: the settings of every operator, the configuration of its client, and the
// options of its manager.
package operator

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/metricsauth"
)

// ShutdownTimeout is how long running passes may take to end. Pods have 30 seconds.
const ShutdownTimeout = 20 * time.Second

// Help of settings that an operator with a server of its own binds one by one.
const (
	KubeconfigHelp = "path of the kubeconfig; empty for $KUBECONFIG, the service account of the pod, or ~/.kube/config"
	LeaseHelp      = "namespace of the lease; empty for that of the pod"
	LogLevelHelp   = "debug, info or error"
)

// Settings are those of every operator, one per flag.
type Settings struct {
	Kubeconfig              string
	LeaderElect             bool
	LeaderElectionNamespace string
	// MetricsBindAddress and HealthProbeBindAddress are host:port; "0" serves none.
	MetricsBindAddress     string
	HealthProbeBindAddress string
	LogLevel               string
}

// Bind defines the flags.
func (s *Settings) Bind(flags *flag.FlagSet) {
	flags.StringVar(&s.Kubeconfig, "kubeconfig", "", KubeconfigHelp)
	flags.BoolVar(&s.LeaderElect, "leader-elect", false, "enable leader election: one of several replicas reconciles")
	flags.StringVar(&s.LeaderElectionNamespace, "leader-election-namespace", "", LeaseHelp)
	flags.StringVar(&s.MetricsBindAddress, "metrics-bind-address", ":8443", "address of metrics, served with authentication and authorization; 0 for none")
	flags.StringVar(&s.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
	flags.StringVar(&s.LogLevel, "log-level", "info", LogLevelHelp)
}

// Validate says what is wrong with the settings.
func (s *Settings) Validate() error { return ValidateLogLevel(s.LogLevel) }

// ValidateLogLevel refuses a level that is not one of debug, info and error.
func ValidateLogLevel(level string) error {
	if !slices.Contains([]string{"debug", "info", "error"}, level) {
		return fmt.Errorf("--log-level=%s: write debug, info or error", level)
	}
	return nil
}

// ParseFlags reads the flags that bind defines, and --version, from arguments without the program's name. Other arguments are refused.
// flag.ErrHelp is returned when help was asked for.
func ParseFlags(program string, arguments []string, bind ...func(*flag.FlagSet)) error {
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	for _, define := range bind {
		define(flags)
	}
	buildinfo.Flag(flags)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: all settings are flags", flags.Arg(0))
	}
	return nil
}

// ClientConfig returns the configuration of a program's client, from a kubeconfig or, where its path is empty, from $KUBECONFIG, the service
// account of the pod, or ~/.kube/config. Its rate is not limited: priority and fairness in the API server do that for all clients together.
// Requests go through wrappers. Answers are not compressed: the API server would pack each batch of events of a watch on its own, which costs both sides more
// than the bytes do on the network of a cluster.
func ClientConfig(program, kubeconfig string, wrappers ...transport.WrapperFunc) (*rest.Config, error) {
	config, err := loadConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.DisableCompression = -1, true
	config.UserAgent = buildinfo.UserAgent(program)
	for _, wrap := range wrappers {
		config.Wrap(wrap)
	}
	return config, nil
}

func loadConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return ctrl.GetConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// Filter decides who may read metrics: filters.WithAuthenticationAndAuthorization of controller-runtime. It is an argument, so that a module
// that needs the types of apis does not need the libraries of the API server.
type Filter = func(*rest.Config, *http.Client) (metricsserver.Filter, error)

// ManagerOptions are those options of a manager that follow from the settings: leader election under the Lease of that name, which is released
// at the end, metrics, probes, and the time to end.
func (s *Settings) ManagerOptions(lease string, filter Filter) ctrl.Options {
	return ctrl.Options{
		Metrics:                       MetricsServer(s.MetricsBindAddress, filter),
		HealthProbeBindAddress:        s.HealthProbeBindAddress,
		LeaderElection:                s.LeaderElect,
		LeaderElectionID:              lease,
		LeaderElectionNamespace:       s.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(ShutdownTimeout),
	}
}

// MetricsServer serves metrics over TLS at an address, to users whom the filter lets pass.
func MetricsServer(address string, filter Filter) metricsserver.Options {
	return metricsserver.Options{BindAddress: address, SecureServing: true, FilterProvider: metricsauth.RefuseUnknownTokens(filter)}
}
