// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// markName is the ConfigMap that Remember writes and Recall reads.
const markName = "mark"

// Kubernetes does with real clusters what the cases ask for.
type Kubernetes struct {
	// Dial opens connections to their API servers; nil for the network of this process.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Use uses a cluster as its administrator does: it lists namespaces with the kubeconfig, and once more with the password alone.
func (k Kubernetes) Use(ctx context.Context, access provision.Access) error {
	config, err := k.restConfig(access)
	if err != nil {
		return err
	}
	if err := listNamespaces(ctx, config); err != nil {
		return fmt.Errorf("with the kubeconfig: %w", err)
	}
	bearer := rest.AnonymousClientConfig(config)
	bearer.BearerToken = access.Password
	bearer.Timeout, bearer.Dial = config.Timeout, config.Dial
	if err := listNamespaces(ctx, bearer); err != nil {
		return fmt.Errorf("with the password: %w", err)
	}
	return nil
}

// Remember writes a mark into a cluster.
func (k Kubernetes) Remember(ctx context.Context, access provision.Access, mark string) error {
	client, err := k.client(access)
	if err != nil {
		return err
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: markName}, Data: map[string]string{markName: mark}}
	_, err = client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, object, metav1.CreateOptions{})
	return err
}

// Recall reads the mark from a cluster.
func (k Kubernetes) Recall(ctx context.Context, access provision.Access) (string, error) {
	client, err := k.client(access)
	if err != nil {
		return "", err
	}
	object, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, markName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return object.Data[markName], nil
}

func listNamespaces(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	return err
}

func (k Kubernetes) client(access provision.Access) (kubernetes.Interface, error) {
	config, err := k.restConfig(access)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// requestTimeout keeps a cluster that hangs from holding up a case.
const requestTimeout = 10 * time.Second

func (k Kubernetes) restConfig(access provision.Access) (*rest.Config, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(access.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.Timeout, config.Dial = requestTimeout, k.Dial
	return config, nil
}
