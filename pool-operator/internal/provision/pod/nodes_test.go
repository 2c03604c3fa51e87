// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/provision/contract"
	"github.com/muster-io/muster/pool-operator/internal/provision/pod"
)

// tunnel reaches the pods of a cluster from outside, through its API server.
type tunnel struct{ config *rest.Config }

// forwarded ends its forwarding when it is closed.
type forwarded struct {
	net.Conn
	stop chan struct{}
}

func (f forwarded) Close() error {
	close(f.stop)
	return f.Conn.Close()
}

// dial takes the name of a Service of a hosted cluster, and goes to the pod behind it.
func (t tunnel) dial(ctx context.Context, network, address string) (net.Conn, error) {
	name, rest, _ := strings.Cut(address, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	transport, upgrader, err := spdy.RoundTripperFor(t.config)
	if err != nil {
		return nil, err
	}
	target, err := http.NewRequestWithContext(ctx, http.MethodPost,
		fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s-0/portforward", strings.TrimSuffix(t.config.Host, "/"), namespace, name), nil)
	if err != nil {
		return nil, err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target.URL)
	stop, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:6443"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return nil, fmt.Errorf("forwarding to %s: %w", address, err)
	case <-ctx.Done():
		close(stop)
		return nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		close(stop)
		return nil, err
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		close(stop)
		return nil, err
	}
	return forwarded{connection, stop}, nil
}

// TestContractOnNodes runs the cases where pods really run. It does not cover the way through the Service: connections go to the pod behind it. A container
// that dies is started again by its kubelet, so there is nothing to kill.
func TestContractOnNodes(t *testing.T) {
	kubeconfig, image := os.Getenv("MUSTER_NODES_KUBECONFIG"), os.Getenv("MUSTER_NODES_IMAGE")
	if kubeconfig == "" || image == "" {
		t.Skip("set MUSTER_NODES_KUBECONFIG to a cluster with nodes and MUSTER_NODES_IMAGE to an image of the control plane that its nodes have")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	admin, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	way := tunnel{config}
	k := &kubelet{T: t, client: admin}
	clusters := contract.Kubernetes{Dial: way.dial}
	ends := map[clusterdeployment.Runtime]context.CancelFunc{}
	contract.Run(t, contract.Harness{
		Open: func(t *testing.T) clusterdeployment.Runtime {
			ctx, cancel := context.WithCancel(t.Context())
			r := watched(ctx, t, pod.New(pod.Options{Client: admin, Images: pod.OneImage(image), Dial: way.dial}), config)
			ends[r] = cancel
			t.Cleanup(cancel)
			return r
		},
		Crash:     func(_ *testing.T, r clusterdeployment.Runtime) { ends[r]() },
		Namespace: k.namespace,
		Use:       clusters.Use,
		Remember:  clusters.Remember,
		Recall:    clusters.Recall,
		Leftovers: k.leftovers,
		Timeout:   3 * time.Minute,
	})
}
