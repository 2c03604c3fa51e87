// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeaccess prepares a hosted cluster for nodes: the objects that joining needs inside the cluster, and the content
// of the Secret by which controllers of machines let them join. The rights of the identity in that Secret are in apis/nodeobjects.
package nodeaccess

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/nodeobjects"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// FieldOwner owns what is applied inside hosted clusters.
const FieldOwner = client.FieldOwner("pool-operator/node-access")

// DefaultDNSImage is the image of CoreDNS.
const DefaultDNSImage = nodeobjects.DefaultDNSImage

// Settings are what the objects in a cluster depend on.
type Settings struct {
	// Network of the cluster.
	Network provision.NodeNetwork
	// DNSImage is the image of CoreDNS.
	DNSImage string
}

// render writes the objects as YAML.
func (s Settings) render() ([]byte, error) {
	return nodeobjects.Render(nodeobjects.Settings{ClusterDNS: s.Network.ClusterDNS, DNSImage: s.DNSImage})
}

// Objects returns what a cluster with nodes has.
func Objects(s Settings) ([]*unstructured.Unstructured, error) {
	text, err := s.render()
	if err != nil {
		return nil, err
	}
	var list []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the objects of clusters with nodes: %w", err)
		}
		if object.Object != nil {
			list = append(list, object)
		}
	}
}

// Apply applies the objects in the cluster that the administrator's kubeconfig opens.
func Apply(ctx context.Context, kubeconfig []byte, s Settings) error {
	list, err := Objects(s)
	if err != nil {
		return err
	}
	cluster, err := open(kubeconfig, list)
	if err != nil {
		return err
	}
	for _, object := range list {
		if err := cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), FieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// Lost says whether one of the objects is missing in the cluster that the administrator's kubeconfig opens. The content of those that are there is not compared.
func Lost(ctx context.Context, kubeconfig []byte, s Settings) (bool, error) {
	list, err := Objects(s)
	if err != nil {
		return false, err
	}
	cluster, err := open(kubeconfig, list)
	if err != nil {
		return false, err
	}
	for _, object := range list {
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(object.GroupVersionKind())
		err := cluster.Get(ctx, client.ObjectKeyFromObject(object), found)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("looking for %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return false, nil
}

// open returns a client for the kinds of the objects, all of which each API server serves.
func open(kubeconfig []byte, list []*unstructured.Unstructured) (client.Client, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	config.QPS = -1 // the API server queues fairly by itself
	kinds := meta.NewDefaultRESTMapper(nil)
	for _, object := range list {
		scope := meta.RESTScopeNamespace
		if object.GetNamespace() == "" {
			scope = meta.RESTScopeRoot
		}
		kinds.Add(object.GroupVersionKind(), scope)
	}
	cluster, err := client.New(config, client.Options{Mapper: kinds})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return cluster, nil
}

// Secret is the content of the Secret of node access, with the keys that hivev1 documents.
func Secret(access provision.Access, version string, s Settings) (map[string][]byte, error) {
	config, err := clientcmd.Load(access.NodeManager)
	if err != nil {
		return nil, fmt.Errorf("reading the node manager's kubeconfig: %w", err)
	}
	cluster, err := clusterOf(config)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		hivev1.NodeAccessKeyServer:            []byte(cluster.Server),
		hivev1.NodeAccessKeyCA:                cluster.CertificateAuthorityData,
		hivev1.SecretKeyKubeconfig:            access.NodeManager,
		hivev1.NodeAccessKeyClusterDNS:        []byte(s.Network.ClusterDNS.String()),
		hivev1.NodeAccessKeyClusterDomain:     []byte(hivev1.DefaultClusterDomain),
		hivev1.NodeAccessKeyPodCIDR:           []byte(s.Network.PodCIDR.String()),
		hivev1.NodeAccessKeyServiceCIDR:       []byte(s.Network.ServiceCIDR.String()),
		hivev1.NodeAccessKeyKubernetesVersion: []byte(version),
		hivev1.NodeAccessKeyNetwork:           []byte(hivev1.NodeNetworkHostGateway),
	}, nil
}

func clusterOf(config *clientcmdapi.Config) (*clientcmdapi.Cluster, error) {
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return nil, errors.New("the node manager's kubeconfig names no cluster")
	}
	return config.Clusters[current.Cluster], nil
}

// ID identifies what node access consists of: the credentials, the version of the cluster, and the objects inside it. Another
// ID calls for another Apply and another Secret.
func ID(accessID, version string, s Settings) (string, error) {
	text, err := s.render()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(accessID+"\n"+version+"\n"+s.Network.PodCIDR.String()+"\n"+s.Network.ServiceCIDR.String()+"\n"), text...))
	return hex.EncodeToString(sum[:16]), nil
}
