// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Keys of the Secret, besides those of the keys and certificates.
const (
	idKey         = "id"
	urlKey        = "url"
	passwordKey   = "password"
	kubeconfigKey = "kubeconfig"
	probeKey      = "probe.kubeconfig"
	managerKey    = "controller-manager.kubeconfig"
	tokensKey     = "tokens.csv"
)

// newIdentity makes all that is secret about a cluster.
func newIdentity(now time.Time, ref provision.ClusterRef, spec provision.Spec, options *Options) (*corev1.Secret, error) {
	address, err := options.address(ref, spec)
	if err != nil {
		return nil, &provision.Problem{Reason: provision.ReasonOther, Message: err.Error()}
	}
	service := objectName(ref)
	files, err := newPKI(now, []string{
		service, service + "." + ref.Namespace, service + "." + ref.Namespace + ".svc", service + "." + ref.Namespace + ".svc.cluster.local",
		address.Hostname(),
	})
	if err != nil {
		return nil, err
	}
	random := make([]byte, 24)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("generating a password: %w", err)
	}
	password := base64.RawURLEncoding.EncodeToString(random)
	files[idKey] = []byte(uuid.NewString())
	files[urlKey] = []byte(address.String())
	files[passwordKey] = []byte(password)
	files[tokensKey] = fmt.Appendf(nil, "%s,kube:admin,kube:admin,\"system:masters\"\n", password)
	for name, config := range kubeconfigs(spec.ClusterName, address.String(), serviceURL(ref), files) {
		if files[name], err = clientcmd.Write(config); err != nil {
			return nil, fmt.Errorf("encoding %s: %w", name, err)
		}
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ref.Namespace, Name: service, Labels: labelsOf(ref), Annotations: map[string]string{NameAnnotation: ref.Name},
		},
		Immutable: new(true),
		Data:      files,
	}, nil
}

// kubeconfigs are those of the administrator, of this operator and of the controller manager, which differ in address and user.
func kubeconfigs(name, address, service string, files map[string][]byte) map[string]clientcmdapi.Config {
	admin := &clientcmdapi.AuthInfo{ClientCertificateData: files["admin.crt"], ClientKeyData: files["admin.key"]}
	manager := &clientcmdapi.AuthInfo{ClientCertificate: pkiPath + "/controller-manager.crt", ClientKey: pkiPath + "/controller-manager.key"}
	config := func(server string, user *clientcmdapi.AuthInfo) clientcmdapi.Config {
		return clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: files["ca.crt"]}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
			Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
			CurrentContext: name,
		}
	}
	return map[string]clientcmdapi.Config{
		kubeconfigKey: config(address, admin),
		probeKey:      config(service, admin),
		managerKey:    config(fmt.Sprintf("https://localhost:%d", port), manager),
	}
}
