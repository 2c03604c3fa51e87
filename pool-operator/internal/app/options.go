// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/pool-operator/internal/nodeaccess"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// Runtimes of hosted clusters.
const (
	// runtimeProcess runs hosted clusters as processes of the operator's own machine.
	runtimeProcess = "process"
	// runtimePod runs hosted clusters as pods in the operator's own cluster.
	runtimePod = "pod"
	// runtimeNone leaves hosted clusters alone.
	runtimeNone = "none"
)

// Options are the operator's settings, one per flag.
type Options struct {
	operator.Settings
	PoolWorkers         int
	PoolWriters         int
	HostedRuntime       string
	HostedDataDir       string
	HostedBinDir        string
	HostedListenAddress string
	HostedDNSImage      string
	HostedImage         string
	HostedStorageClass  string
	HostedStorageSize   string
	HostedAddress       string
	HostedExpose        string
	HostedNodeAddress   string
	HostedGateway       string
}

// ParseOptions reads options from arguments, without the program's name, and validates them. flag.ErrHelp is returned when help was asked for.
func ParseOptions(arguments []string) (Options, error) {
	var o Options
	if err := operator.ParseFlags("pool-operator", arguments, o.Bind, o.bind, tracing.Usage); err != nil {
		return o, err
	}
	return o, o.Validate()
}

func (o *Options) bind(flags *flag.FlagSet) {
	flags.IntVar(&o.PoolWorkers, "pool-workers", 10, "number of pools reconciled in parallel")
	flags.IntVar(&o.PoolWriters, "pool-writers", 8, "number of clusters created, changed or deleted in parallel, over all pools")
	flags.StringVar(&o.HostedRuntime, "hosted-runtime", runtimeNone, "runtime of hosted clusters: process, pod or none")
	flags.StringVar(&o.HostedDataDir, "hosted-data-dir", "", "directory of hosted clusters, with --hosted-runtime=process")
	flags.StringVar(&o.HostedBinDir, "hosted-bin-dir", "",
		"directory of etcd, kube-apiserver and kube-controller-manager, with --hosted-runtime=process; empty for $KUBEBUILDER_ASSETS, then the user's cache")
	flags.StringVar(&o.HostedListenAddress, "hosted-listen-address", "127.0.0.1",
		"IP address of this machine that hosted clusters listen on, with --hosted-runtime=process; clusters that take nodes need one that the nodes reach")
	flags.StringVar(&o.HostedDNSImage, "hosted-dns-image", nodeaccess.DefaultDNSImage, "image of CoreDNS in hosted clusters that take nodes")
	flags.StringVar(&o.HostedImage, "hosted-image", "", "image with etcd, kube-apiserver and kube-controller-manager, with --hosted-runtime=pod")
	flags.StringVar(&o.HostedStorageClass, "hosted-storage-class", "", "StorageClass of hosted clusters' volumes, with --hosted-runtime=pod; empty for the default class")
	flags.StringVar(&o.HostedStorageSize, "hosted-storage-size", "1Gi", "size of a hosted cluster's volume, with --hosted-runtime=pod")
	flags.StringVar(&o.HostedAddress, "hosted-address", "",
		"URL at which clients reach a hosted cluster, as https://{clusterName}.{baseDomain}:6443, also with {name} and {namespace}, with --hosted-runtime=pod; "+
			"empty for the address that --hosted-expose gives")
	flags.StringVar(&o.HostedExpose, "hosted-expose", string(pod.ExposeClusterIP),
		"how clients outside the cluster reach hosted clusters, with --hosted-runtime=pod: ClusterIP, NodePort, LoadBalancer or Gateway")
	flags.StringVar(&o.HostedNodeAddress, "hosted-node-address", "", "host name or IP address at which nodes are reached, with --hosted-expose=NodePort")
	flags.StringVar(&o.HostedGateway, "hosted-gateway", "", "namespace/name of the Gateway that passes TLS through, with --hosted-expose=Gateway")
}

// Validate says everything that is wrong with the options.
func (o *Options) Validate() error {
	errs := []error{o.Settings.Validate()}
	if o.PoolWorkers < 1 {
		errs = append(errs, fmt.Errorf("--pool-workers=%d: write 1 or more", o.PoolWorkers))
	}
	if o.PoolWriters < 1 {
		errs = append(errs, fmt.Errorf("--pool-writers=%d: write 1 or more", o.PoolWriters))
	}
	return errors.Join(append(errs, o.validateHosted())...)
}

func (o *Options) validateHosted() error {
	if o.HostedBinDir != "" {
		if info, err := os.Stat(o.HostedBinDir); err != nil || !info.IsDir() {
			return fmt.Errorf("--hosted-bin-dir=%s: there is no such directory; write that of etcd, kube-apiserver and kube-controller-manager", o.HostedBinDir)
		}
	}
	switch o.HostedRuntime {
	case runtimeNone:
		return nil
	case runtimeProcess:
		if o.HostedDataDir == "" {
			return errors.New("--hosted-runtime=process needs --hosted-data-dir, the directory of the clusters' data")
		}
		if o.LeaderElect {
			return errors.New("--hosted-runtime=process and --leader-elect exclude each other: the clusters' data is on one machine")
		}
		if address, err := netip.ParseAddr(o.HostedListenAddress); err != nil || address.Zone() != "" {
			return fmt.Errorf("--hosted-listen-address=%s: write an IP address of this machine such as 192.168.0.10", o.HostedListenAddress)
		}
		return nil
	case runtimePod:
		if o.HostedImage == "" {
			return errors.New("--hosted-runtime=pod needs --hosted-image, the image with the programs of a control plane")
		}
		if _, err := resource.ParseQuantity(o.HostedStorageSize); err != nil {
			return fmt.Errorf("--hosted-storage-size=%s: write a quantity such as 1Gi", o.HostedStorageSize)
		}
		return o.validateExposure()
	}
	return fmt.Errorf("--hosted-runtime=%s: write %s", o.HostedRuntime, strings.Join([]string{runtimeProcess, runtimePod, runtimeNone}, ", "))
}

func (o *Options) validateExposure() error {
	switch pod.Exposure(o.HostedExpose) {
	case pod.ExposeClusterIP, pod.ExposeLoadBalancer:
		return nil
	case pod.ExposeNodePort:
		if o.HostedNodeAddress == "" {
			return errors.New("--hosted-expose=NodePort needs --hosted-node-address, at which clients reach the nodes")
		}
		if o.HostedAddress != "" {
			return errors.New("--hosted-expose=NodePort and --hosted-address exclude each other: the port is the one that the cluster gets")
		}
		return nil
	case pod.ExposeGateway:
		if o.HostedAddress == "" {
			return errors.New("--hosted-expose=Gateway needs --hosted-address, as https://{clusterName}.{baseDomain}:443, whose host is the route's")
		}
		if _, err := pod.ParseGateway(o.HostedGateway); err != nil {
			return fmt.Errorf("--hosted-gateway: %w", err)
		}
		return nil
	}
	return fmt.Errorf("--hosted-expose=%s: write ClusterIP, NodePort, LoadBalancer or Gateway", o.HostedExpose)
}
