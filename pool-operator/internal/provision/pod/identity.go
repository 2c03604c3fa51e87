// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Keys of the Secret, besides those of the keys and certificates.
const (
	idKey         = "id"
	urlKey        = "url"
	passwordKey   = "password"
	kubeconfigKey = "kubeconfig"
	managerKey    = "controller-manager.kubeconfig"
	tokensKey     = "tokens.csv"
	encryptionKey = "encryption.yaml"
	auditPrefix   = "audit-"
	nameKey       = "cluster-name"
	domainKey     = "base-domain"
)

// newIdentity makes all that is secret about a cluster and never changes.
func newIdentity(now time.Time, ref provision.ClusterRef, spec provision.Spec) (*corev1.Secret, error) {
	files, err := newPKI(now)
	if err != nil {
		return nil, err
	}
	random := make([]byte, 24)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("generating a password: %w", err)
	}
	password := base64.RawURLEncoding.EncodeToString(random)
	files[idKey] = []byte(uuid.NewString())
	files[nameKey], files[domainKey] = []byte(spec.ClusterName), []byte(spec.BaseDomain)
	files[passwordKey] = []byte(password)
	files[tokensKey] = fmt.Appendf(nil, "%s,kube:admin,kube:admin,\"system:masters\"\n", password)
	if files[encryptionKey], err = controlplane.NewEncryption(); err != nil {
		return nil, err
	}
	for _, level := range auditLevels {
		files[auditKey(level)] = controlplane.AuditPolicy(level)
	}
	manager := &clientcmdapi.AuthInfo{ClientCertificate: pkiPath + "/controller-manager.crt", ClientKey: pkiPath + "/controller-manager.key"}
	if files[managerKey], err = clientcmd.Write(kubeconfig(spec.ClusterName, fmt.Sprintf("https://localhost:%d", port), files["ca.crt"], manager)); err != nil {
		return nil, fmt.Errorf("encoding %s: %w", managerKey, err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ref.Namespace, Name: objectName(ref), Labels: labelsOf(ref), Annotations: map[string]string{NameAnnotation: ref.Name},
		},
		Immutable: new(true),
		Data:      files,
	}, nil
}

// namesOf are the names of the cluster, as they were when it was first started.
func namesOf(identity *corev1.Secret) provision.Spec {
	return provision.Spec{ClusterName: string(identity.Data[nameKey]), BaseDomain: string(identity.Data[domainKey])}
}

// adminOf is the administrator by the certificate.
func adminOf(files map[string][]byte) *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{ClientCertificateData: files["admin.crt"], ClientKeyData: files["admin.key"]}
}

func kubeconfig(name, server string, ca []byte, user *clientcmdapi.AuthInfo) clientcmdapi.Config {
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
}

// auditLevels are those for which the Secret holds a policy.
var auditLevels = []string{"Metadata", "Request", "RequestResponse"}

func auditKey(level string) string { return auditPrefix + strings.ToLower(level) + ".yaml" }

// features are what a cluster has beside the programs. One whose identity was made before there was such a thing goes on without it.
type features struct {
	// legacy says that the certificates are in the identity.
	legacy bool
	// encrypted says that Secrets are encrypted in etcd.
	encrypted bool
	// audit is the name of the file with the audit policy; "" for none.
	audit string
	// pullSecret is the name of the Secret with which images are pulled; "" for none.
	pullSecret string
}

func featuresOf(identity *corev1.Secret, spec provision.Spec) features {
	f := features{legacy: legacy(identity), encrypted: len(identity.Data[encryptionKey]) > 0, pullSecret: spec.PullSecret}
	if name := auditKey(spec.Audit); spec.Audit != "" && len(identity.Data[name]) > 0 {
		f.audit = name
	}
	return f
}
