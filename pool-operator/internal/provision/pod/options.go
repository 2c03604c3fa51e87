// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Images are the container images of a cluster's programs. Each must find its program by name in its PATH.
type Images struct {
	Etcd              string
	APIServer         string
	ControllerManager string
}

// OneImage is an image that holds all programs.
func OneImage(image string) Images {
	return Images{Etcd: image, APIServer: image, ControllerManager: image}
}

// Options configure the runtime.
type Options struct {
	// Client reads and writes without a cache: what a pass did must be seen by the same pass.
	Client client.Client
	// Images of the containers. A change reaches a cluster when it is next started.
	Images Images
	// VolumeSize of etcd's data; default 2Gi.
	VolumeSize resource.Quantity
	// StorageClass of the volume; "" is the default of the cluster.
	StorageClass string
	// Address is the URL at which clients reach the API server, with {name}, {namespace}, {clusterName} and {baseDomain} filled in at the
	// first start, as https://{clusterName}.{baseDomain}:6443. Default: the Service's name inside the cluster.
	Address string
	// Dial opens connections to API servers of hosted clusters; default is the network of this process, which then has to be in the cluster.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// port of the API server, in the pod and on the Service.
const port = 6443

func (o *Options) setDefaults() {
	if o.VolumeSize.IsZero() {
		o.VolumeSize = resource.MustParse("2Gi")
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
}

// serviceURL is where this operator reaches the API server.
func serviceURL(ref provision.ClusterRef) string {
	return fmt.Sprintf("https://%s.%s.svc:%d", objectName(ref), ref.Namespace, port)
}

// address is where clients reach the API server.
func (o *Options) address(ref provision.ClusterRef, spec provision.Spec) (*url.URL, error) {
	if o.Address == "" {
		return url.Parse(serviceURL(ref))
	}
	filled := strings.NewReplacer("{name}", ref.Name, "{namespace}", ref.Namespace,
		"{clusterName}", spec.ClusterName, "{baseDomain}", spec.BaseDomain).Replace(o.Address)
	address, err := url.Parse(filled)
	if err != nil || address.Scheme != "https" || address.Hostname() == "" {
		return nil, fmt.Errorf("the address template %q gives %q, which is no https URL", o.Address, filled)
	}
	return address, nil
}
