// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"

	"github.com/muster-io/muster/apis/pki"
)

// joinFile is where first-boot data says what a machine joins its cluster with.
const joinFile = "/etc/muster/join.json"

// Kubelet stands for the kubelet of a generated machine, with a certificate of its own.
type Kubelet struct {
	// Node is the name of its Node.
	Node   string
	client kubernetes.Interface
}

// Join makes the Node of an installed machine with what it was given, as its kubelet does, and says that it is Ready.
func (f *Fleet) Join(ctx context.Context, host string) (*Kubelet, error) {
	files, err := f.FirstBoot(host)
	if err != nil {
		return nil, err
	}
	var join struct{ NodeName, Server, TLSServerName, CA, Token string }
	if err := json.Unmarshal(files[joinFile], &join); err != nil {
		return nil, fmt.Errorf("reading %s of host %s: %w", joinFile, host, err)
	}
	config := &rest.Config{Host: join.Server, BearerToken: join.Token, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(join.CA), ServerName: join.TLSServerName}}
	if err := certify(ctx, config, join.NodeName); err != nil {
		return nil, fmt.Errorf("getting the certificate of node %s: %w", join.NodeName, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of node %s: %w", join.NodeName, err)
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: join.NodeName}}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("making Node %s: %w", join.NodeName, err)
	}
	k := &Kubelet{Node: join.NodeName, client: client}
	return k, k.Ready(ctx)
}

// certify replaces the bootstrap token of a configuration by the certificate that it gets.
func certify(ctx context.Context, config *rest.Config, node string) error {
	bootstrap, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	key, err := pki.NewKey()
	if err != nil {
		return err
	}
	asked, err := certutil.MakeCSR(key, &pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, nil, nil)
	if err != nil {
		return err
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, bootstrap, asked, "", certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, key)
	if err != nil {
		return err
	}
	certificate, err := csr.WaitForCertificate(ctx, bootstrap, name, uid)
	if err != nil {
		return err
	}
	config.BearerToken, config.CertData = "", certificate
	config.KeyData, err = pki.EncodeKey(key)
	return err
}

// Ready says that the Node is Ready, as a kubelet does again and again while its machine runs.
func (k *Kubelet) Ready(ctx context.Context) error {
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}]}}`, metav1.Now().UTC().Format("2006-01-02T15:04:05Z"))
	if _, err := k.client.CoreV1().Nodes().PatchStatus(ctx, k.Node, patch); err != nil {
		return fmt.Errorf("writing the status of Node %s: %w", k.Node, err)
	}
	return nil
}
