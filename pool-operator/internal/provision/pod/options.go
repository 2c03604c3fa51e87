// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"net"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// String returns the images in one line.
func (i Images) String() string { return i.Etcd + " " + i.APIServer + " " + i.ControllerManager }

// imagesOf are the images in the template of a StatefulSet, for one that does not record what the operator asked for.
func imagesOf(set *appsv1.StatefulSet) Images {
	var images Images
	for _, container := range slices.Concat(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers) {
		switch container.Name {
		case etcd:
			images.Etcd = container.Image
		case apiServer:
			images.APIServer = container.Image
		case controllerManager:
			images.ControllerManager = container.Image
		}
	}
	return images
}

// Options configure the runtime.
type Options struct {
	// Client reads and writes without a cache: what a pass did must be seen by the same pass.
	Client client.Client
	// Reopen returns a client like Client that has read anew which kinds are served, and in which versions; nil where that does not change.
	Reopen func() (client.Client, error)
	// Images of the containers. A change reaches a cluster when it is next started.
	Images Images
	// VolumeSize of etcd's data; default 2Gi.
	VolumeSize resource.Quantity
	// StorageClass of the volume; "" is the default of the cluster.
	StorageClass string
	// Expose is how clients reach the API server; default ExposeClusterIP.
	Expose Exposure
	// Address is the URL at which clients reach the API server, with {name}, {namespace}, {clusterName} and {baseDomain} filled in, as
	// https://{clusterName}.{baseDomain}:6443. Default: what the exposure gives. Certificates and kubeconfigs follow a change.
	Address string
	// NodeAddress is the host name or IP address at which nodes are reached, for ExposeNodePort.
	NodeAddress string
	// Gateway is the one that ExposeGateway routes through.
	Gateway types.NamespacedName
	// Now tells the time; default time.Now.
	Now func() time.Time
	// Dial opens connections to API servers of hosted clusters; default is the network of this process, which then has to be in the cluster.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// port of the API server, in the pod and on the Service, and its name there.
const (
	port     = 6443
	portName = "api"
)

func (o *Options) setDefaults() {
	if o.VolumeSize.IsZero() {
		o.VolumeSize = resource.MustParse("2Gi")
	}
	if o.Expose == "" {
		o.Expose = ExposeClusterIP
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
}
