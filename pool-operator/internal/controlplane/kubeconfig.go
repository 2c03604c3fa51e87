// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfigs writes the admin's kubeconfig, which stands alone, and the controller manager's, which names files,
// so that a renewed certificate is picked up without a restart.
func (d layout) writeKubeconfigs(name, server string) error {
	ca, err := os.ReadFile(d.pki("ca.crt"))
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	certificate, err := os.ReadFile(d.pki("admin.crt"))
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	key, err := os.ReadFile(d.pki("admin.key"))
	if err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	admin := kubeconfig(name, server, ca, &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key})
	if err := d.writeKubeconfig(d.kubeconfig(), admin); err != nil {
		return err
	}
	manager := kubeconfig(name, server, ca, &clientcmdapi.AuthInfo{
		ClientCertificate: d.pki("controller-manager.crt"), ClientKey: d.pki("controller-manager.key"),
	})
	return d.writeKubeconfig(d.managerConfig(), manager)
}

func kubeconfig(name, server string, ca []byte, user *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	return &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
}

func (d layout) writeKubeconfig(path string, config *clientcmdapi.Config) error {
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig %s: %w", path, err)
	}
	return d.write(path, content)
}
