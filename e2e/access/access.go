// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package access gets into clusters that claims have, with what a claim's subject may read and nothing else.
package access

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Kubeconfig reads the administrator's kubeconfig of the cluster in a namespace, as the user that c is.
func Kubeconfig(ctx context.Context, c client.Reader, namespace string) ([]byte, error) {
	cluster := &hivev1.ClusterDeployment{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: namespace}, cluster); err != nil {
		return nil, fmt.Errorf("reading the cluster %s: %w", namespace, err)
	}
	if cluster.Spec.ClusterMetadata == nil {
		return nil, fmt.Errorf("the cluster %s is not installed yet", namespace)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: namespace, Name: cluster.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name}
	if err := c.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the cluster %s: %w", namespace, err)
	}
	kubeconfig := secret.Data[hivev1.SecretKeyKubeconfig]
	if len(kubeconfig) == 0 {
		return nil, fmt.Errorf("the secret %s has no key %s", key, hivev1.SecretKeyKubeconfig)
	}
	return kubeconfig, nil
}

// Config makes a client's configuration from a kubeconfig. An address that only means something inside the cluster that hosts the API server is
// reached through that cluster, as kubectl port-forward does.
func Config(kubeconfig []byte, host *rest.Config) (*rest.Config, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	config.QPS = -1
	tunnel, err := newTunnel(host)
	if err != nil {
		return nil, err
	}
	config.Dial = tunnel.dial
	return config, nil
}
