// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// tunnel reaches Services of a cluster from outside.
type tunnel struct {
	host    *rest.Config
	clients kubernetes.Interface
}

func newTunnel(host *rest.Config) (*tunnel, error) {
	clients, err := kubernetes.NewForConfig(host)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &tunnel{host: host, clients: clients}, nil
}

// dial connects to an address: by way of the Service that has it, or directly if there is none.
func (t *tunnel) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(host)
	if ip != nil && ip.IsLoopback() {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	service, err := t.service(ctx, host)
	if err != nil || service == nil {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("reading the port of %s: %w", address, err)
	}
	pod, err := t.pod(ctx, service)
	if err != nil {
		return nil, err
	}
	return t.forward(ctx, pod, targetPort(service, pod, number))
}

// service returns the Service that a name <service>.<namespace>.svc or a cluster address belongs to, or nil.
func (t *tunnel) service(ctx context.Context, host string) (*corev1.Service, error) {
	if parts := strings.Split(host, "."); len(parts) > 2 && parts[2] == "svc" {
		return t.clients.CoreV1().Services(parts[1]).Get(ctx, parts[0], metav1.GetOptions{})
	}
	if net.ParseIP(host) == nil {
		return nil, nil
	}
	list, err := t.clients.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing services: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.ClusterIP == host {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// pod returns a running pod behind a Service.
func (t *tunnel) pod(ctx context.Context, service *corev1.Service) (*corev1.Pod, error) {
	list, err := t.clients.CoreV1().Pods(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s/%s: %w", service.Namespace, service.Name, err)
	}
	for i := range list.Items {
		if list.Items[i].Status.Phase == corev1.PodRunning {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no pod runs behind %s/%s", service.Namespace, service.Name)
}

// targetPort returns the port of the pod that a port of the Service leads to.
func targetPort(service *corev1.Service, pod *corev1.Pod, port int) int {
	for _, p := range service.Spec.Ports {
		if int(p.Port) != port {
			continue
		}
		if p.TargetPort.StrVal == "" {
			if p.TargetPort.IntVal == 0 {
				return port
			}
			return p.TargetPort.IntValue()
		}
		for _, container := range pod.Spec.Containers {
			for _, named := range container.Ports {
				if named.Name == p.TargetPort.StrVal {
					return int(named.ContainerPort)
				}
			}
		}
	}
	return port
}

// forward opens a forwarded port and connects to it. The forwarding ends with the connection.
func (t *tunnel) forward(ctx context.Context, pod *corev1.Pod, port int) (net.Conn, error) {
	transport, upgrader, err := spdy.RoundTripperFor(t.host)
	if err != nil {
		return nil, fmt.Errorf("preparing to forward a port: %w", err)
	}
	url := t.clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	stop, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, fmt.Errorf("preparing to forward a port: %w", err)
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return nil, fmt.Errorf("forwarding a port of %s/%s: %w", pod.Namespace, pod.Name, err)
	case <-ctx.Done():
		close(stop)
		return nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err == nil && len(ports) == 0 {
		err = errors.New("no port")
	}
	if err != nil {
		close(stop)
		return nil, fmt.Errorf("forwarding a port of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		close(stop)
		return nil, err
	}
	return &forwarded{Conn: conn, stop: stop}, nil
}

// forwarded is a connection through a forwarded port.
type forwarded struct {
	net.Conn
	stop chan struct{}
}

// Close ends the connection and the forwarding.
func (f *forwarded) Close() error {
	err := f.Conn.Close()
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	return err
}
