// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/join"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// requestTimeout bounds a request to a cluster that takes nodes. Watches are bounded by the API server.
const requestTimeout = 15 * time.Second

// Access is a Secret of node access that was read.
type Access struct {
	// Version is the resourceVersion of the Secret, or made of the credentials of a control plane that the service made: another one says that the access changed.
	Version string
	// values are the part of join.Values that is the same for all hosts.
	values     join.Values
	kubeconfig []byte
}

// KubernetesVersion is that of the API server, v1.2.3.
func (a *Access) KubernetesVersion() string { return a.values.KubernetesVersion }

// String hides the credentials.
func (*Access) String() string { return "[node access]" }

// ReadAccess reads the node access of a cluster. It is nil where the ClusterDeployment names none: the cluster takes no nodes, or is not
// installed yet. A refusal says what is wrong with the Secret.
func ReadAccess(ctx context.Context, reader client.Reader, deployment *hivev1.ClusterDeployment) (*Access, error) {
	metadata := deployment.Spec.ClusterMetadata
	if metadata == nil || metadata.NodeAccessSecretRef == nil || metadata.NodeAccessSecretRef.Name == "" {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: deployment.Namespace, Name: metadata.NodeAccessSecretRef.Name}
	secret := &corev1.Secret{}
	err := reader.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return nil, domain.Refuse(domain.Conflict, "NodeAccessMissing", "the Secret %s, which spec.clusterMetadata.nodeAccessSecretRef names, is not there", key)
	}
	if apierrors.IsForbidden(err) {
		return nil, domain.Refuse(domain.Conflict, "NodeAccessForbidden", "the Secret %s, which spec.clusterMetadata.nodeAccessSecretRef names, may not be read: bind the ClusterRole agent-service-secrets in its namespace", key)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the node access %s: %w", key, err)
	}
	access, err := parseAccess(secret)
	if err != nil {
		return nil, domain.Refuse(domain.Conflict, "NodeAccessInvalid", "the Secret %s cannot be used for node access: %v", key, err)
	}
	return access, nil
}

// OwnAccess is the node access of a cluster whose control plane the service made, with the kubeconfig of its node manager.
func OwnAccess(plane *domain.ControlPlane, nodeManager string) (*Access, error) {
	access, err := parseAccess(&corev1.Secret{Type: hivev1.SecretTypeNodeAccess, Data: OwnAccessData(plane, nodeManager)})
	access.Version = fmt.Sprintf("%x", sha256.Sum256([]byte(nodeManager))) // each installation has its own
	return access, err
}

// OwnAccessData is the content of the Secret of such node access.
func OwnAccessData(plane *domain.ControlPlane, nodeManager string) map[string][]byte {
	return map[string][]byte{
		hivev1.NodeAccessKeyServer:            []byte(plane.Server),
		hivev1.NodeAccessKeyCA:                []byte(plane.CA),
		hivev1.SecretKeyKubeconfig:            []byte(nodeManager),
		hivev1.NodeAccessKeyClusterDNS:        []byte(plane.ClusterDNS().String()),
		hivev1.NodeAccessKeyClusterDomain:     []byte(hivev1.DefaultClusterDomain),
		hivev1.NodeAccessKeyPodCIDR:           joined(plane.PodCIDRs),
		hivev1.NodeAccessKeyServiceCIDR:       joined(plane.ServiceCIDRs),
		hivev1.NodeAccessKeyKubernetesVersion: []byte(plane.Version),
		hivev1.NodeAccessKeyNetwork:           []byte(hivev1.NodeNetworkHostGateway),
	}
}

func joined(networks []netip.Prefix) []byte {
	var all []string
	for _, network := range networks {
		all = append(all, network.String())
	}
	return []byte(strings.Join(all, ","))
}

// parseAccess says what is wrong by keys, and quotes no value.
func parseAccess(secret *corev1.Secret) (*Access, error) {
	if secret.Type != corev1.SecretType(hivev1.SecretTypeNodeAccess) {
		return nil, fmt.Errorf("its type is %q, not %s", secret.Type, hivev1.SecretTypeNodeAccess)
	}
	text := func(key string) string { return strings.TrimSpace(string(secret.Data[key])) }
	access := &Access{Version: secret.ResourceVersion, kubeconfig: secret.Data[hivev1.SecretKeyKubeconfig]}
	access.values = join.Values{
		Server: text(hivev1.NodeAccessKeyServer), TLSServerName: text(hivev1.NodeAccessKeyTLSServerName), CA: text(hivev1.NodeAccessKeyCA) + "\n",
		ClusterDomain: text(hivev1.NodeAccessKeyClusterDomain), KubernetesVersion: text(hivev1.NodeAccessKeyKubernetesVersion), Network: text(hivev1.NodeAccessKeyNetwork),
	}
	if access.values.ClusterDomain == "" {
		access.values.ClusterDomain = hivev1.DefaultClusterDomain
	}
	if access.values.Network == "" {
		access.values.Network = hivev1.NodeNetworkNone
	}
	var errs []error
	access.values.ClusterDNS = list(secret, hivev1.NodeAccessKeyClusterDNS, netip.ParseAddr, &errs)
	access.values.PodCIDRs = list(secret, hivev1.NodeAccessKeyPodCIDR, netip.ParsePrefix, &errs)
	access.values.ServiceCIDRs = list(secret, hivev1.NodeAccessKeyServiceCIDR, netip.ParsePrefix, &errs)
	if _, err := restConfig(access.kubeconfig); err != nil {
		errs = append(errs, fmt.Errorf("%s %w", hivev1.SecretKeyKubeconfig, err))
	}
	sample := access.values
	sample.NodeName = "host"
	return access, errors.Join(append(errs, sample.Validate())...)
}

// list reads values that commas separate.
func list[T any](secret *corev1.Secret, key string, parse func(string) (T, error), errs *[]error) []T {
	var values []T
	for item := range strings.SplitSeq(string(secret.Data[key]), ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		value, err := parse(item)
		if err != nil {
			*errs = append(*errs, fmt.Errorf("%s: %w", key, err))
			continue
		}
		values = append(values, value)
	}
	return values
}

// restConfig reads a kubeconfig, which a user may have written: it has to hold what it needs. A program that it names would run with the rights of the service, and a file that it names,
// such as the service's own token, would be sent to the server that it names. The error goes on after the name of the kubeconfig, and quotes nothing.
func restConfig(kubeconfig []byte) (*rest.Config, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("is no kubeconfig")
	}
	if used := config.Contexts[config.CurrentContext]; used != nil {
		user, cluster := config.AuthInfos[used.AuthInfo], config.Clusters[used.Cluster]
		switch {
		case user != nil && (user.Exec != nil || user.AuthProvider != nil):
			return nil, errors.New("names a program that makes credentials: it has to hold a token, or a client certificate and its key")
		case user != nil && (user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != ""), cluster != nil && cluster.CertificateAuthority != "":
			return nil, errors.New("names a file: it has to hold token and certificates themselves, as kubectl config view --minify --flatten --raw prints it")
		}
	}
	// Its errors may quote credentials.
	made, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, errors.New("is no kubeconfig")
	}
	return made, nil
}

// Client makes a client of the cluster with the rights of its node manager. An answer that is too large is an ErrTooMuch.
func (a *Access) Client() (kubernetes.Interface, error) {
	config, err := restConfig(a.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of node access %w", err)
	}
	config.UserAgent, config.QPS, config.ContentType, config.AcceptContentTypes = "agent-service", -1, runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, errors.New("the kubeconfig of node access cannot be used")
	}
	return c, nil
}
