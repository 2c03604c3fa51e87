// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfigs writes the admin's and the node manager's kubeconfig, which stand alone, and those of the controller manager and the
// scheduler, which name files, so that a renewed certificate is picked up without a restart.
func (d layout) writeKubeconfigs(name, server string, nodes bool) error {
	ca, err := os.ReadFile(d.pki("ca.crt"))
	if err != nil {
		return fmt.Errorf("writing the kubeconfigs: %w", err)
	}
	alone, byFile := map[string]string{"admin": d.kubeconfig()}, map[string]string{"controller-manager": d.managerConfig()}
	if nodes {
		alone["node-manager"], byFile["scheduler"] = d.nodeManagerConfig(), d.schedulerConfig()
	}
	for user, path := range alone {
		certificate, err := os.ReadFile(d.pki(user + ".crt"))
		if err != nil {
			return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
		}
		key, err := os.ReadFile(d.pki(user + ".key"))
		if err != nil {
			return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
		}
		if err := d.writeKubeconfig(path, kubeconfig(name, server, ca, &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key})); err != nil {
			return err
		}
	}
	for user, path := range byFile {
		info := &clientcmdapi.AuthInfo{ClientCertificate: d.pki(user + ".crt"), ClientKey: d.pki(user + ".key")}
		if err := d.writeKubeconfig(path, kubeconfig(name, server, ca, info)); err != nil {
			return err
		}
	}
	return nil
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
