// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package join holds what a machine needs to join a Kubernetes cluster as a node. Values are .Join in templates of
// first-boot data, and, as JSON, the file Path of a node image.
package join

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Path is the file in which a node image finds Values.
const Path = "/etc/muster/join.json"

// Files of a node, where kubeadm has them, too.
const (
	// CAPath is the file of Values.CA.
	CAPath = "/etc/kubernetes/pki/ca.crt"
	// BootstrapKubeconfigPath is the file of Values.BootstrapKubeconfig. A node deletes it after it has joined.
	BootstrapKubeconfigPath = "/etc/kubernetes/bootstrap-kubelet.conf"
	// KubeconfigPath is the file that the kubelet makes as soon as it asks for a certificate.
	KubeconfigPath = "/etc/kubernetes/kubelet.conf"
	// CertificatesPath is the directory of the kubelet's certificates.
	CertificatesPath = "/var/lib/kubelet/pki"
	// ClientCertificatePath is the certificate that KubeconfigPath names. It is there when it was approved: until then a kubelet that starts again needs the bootstrap token.
	ClientCertificatePath = CertificatesPath + "/kubelet-client-current.pem"
	// KubeletConfigurationPath is the file of Values.KubeletConfiguration.
	KubeletConfigurationPath = "/var/lib/kubelet/config.yaml"
)

// CertificateExpires is when the content of ClientCertificatePath expires: with the first of its certificates, as the kubelet has it. It is an error where it is not a certificate with
// its key, such as a file that a loss of power left empty.
func CertificateExpires(content []byte) (time.Time, error) {
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return time.Time{}, errors.New("it is not a certificate with its key") // the error may quote the key
	}
	expires := pair.Leaf.NotAfter
	for _, der := range pair.Certificate[1:] {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return time.Time{}, errors.New("it has a certificate that cannot be read")
		}
		if certificate.NotAfter.Before(expires) {
			expires = certificate.NotAfter
		}
	}
	return expires, nil
}

// Networks among pods; see the key network of node access.
const (
	HostGateway = "host-gw"
	None        = "none"
)

// Values let one machine join one cluster.
type Values struct {
	// NodeName is the name of the Node, a DNS label or several.
	NodeName string `json:"nodeName"`
	// NodeIPs are the addresses of the Node, at most one per family; the kubelet chooses where there are none.
	NodeIPs []netip.Addr `json:"nodeIPs,omitempty"`
	// Server is the URL of the API server: https, a host and a port.
	Server string `json:"server"`
	// TLSServerName is the name that the API server's certificate is verified for; empty for the host of Server.
	TLSServerName string `json:"tlsServerName,omitempty"`
	// CA are PEM certificates that sign the API server's certificate and those of its clients.
	CA string `json:"ca"`
	// Token is a bootstrap token: a secret, which ends when the node has joined. Empty on a node that has joined.
	Token string `json:"token,omitempty"`
	// ClusterDNS are the addresses of the cluster's resolver.
	ClusterDNS []netip.Addr `json:"clusterDNS,omitempty"`
	// ClusterDomain is the cluster's DNS domain.
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// PodCIDRs and ServiceCIDRs are the networks of the cluster.
	PodCIDRs     []netip.Prefix `json:"podCIDRs,omitempty"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// KubernetesVersion is that of the API server, v1.2.3.
	KubernetesVersion string `json:"kubernetesVersion"`
	// Network is HostGateway or None.
	Network string `json:"network"`
	// Labels and Taints are of the Node from its first registration on.
	Labels map[string]string `json:"labels,omitempty"`
	Taints []Taint           `json:"taints,omitempty"`
}

// Taint is one of a Node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

var (
	nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	// serverName is a DNS name or an address: templates write it into scripts.
	serverName = regexp.MustCompile(`^[-A-Za-z0-9._:]+$`)
	token      = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	version    = regexp.MustCompile(`^v1\.\d+\.\d+`)
)

// Read reads the file Path.
func Read(data []byte) (Values, error) {
	var v Values
	if json.Unmarshal(data, &v) != nil { // the error may quote the token
		return v, fmt.Errorf("%s is not a JSON object of join values", Path)
	}
	return v, v.Validate()
}

// Validate says what a machine cannot join with. Its error contains no secret.
func (v Values) Validate() error {
	var errs []error
	check := func(ok bool, format string, values ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, values...))
		}
	}
	check(len(v.NodeName) <= 253 && nodeName.MatchString(v.NodeName), "nodeName %q is not a DNS name in lower case", v.NodeName)
	server, err := url.Parse(v.Server)
	check(err == nil && server.Scheme == "https" && server.Host != "" && server.User == nil && strings.Trim(server.Path, "/") == "",
		"server is not a URL of the form https://host:port")
	check(v.TLSServerName == "" || len(v.TLSServerName) <= 253 && serverName.MatchString(v.TLSServerName), "tls-server-name is not a DNS name")
	block, _ := pem.Decode([]byte(v.CA))
	check(block != nil && block.Type == "CERTIFICATE", "ca holds no PEM certificate")
	check(v.Token == "" || token.MatchString(v.Token), "token is not a bootstrap token of the form abcdef.0123456789abcdef")
	check(version.MatchString(v.KubernetesVersion), "kubernetesVersion %q is not of the form v1.2.3", v.KubernetesVersion)
	check(v.Network == HostGateway || v.Network == None, "network %q is neither %s nor %s", v.Network, HostGateway, None)
	check(v.Network != HostGateway || len(v.PodCIDRs) > 0, "network %s needs podCIDRs", HostGateway)
	check(onePerFamily(v.NodeIPs), "nodeIPs has two addresses of one family")
	return errors.Join(errs...)
}

func onePerFamily(addresses []netip.Addr) bool {
	four, six := 0, 0
	for _, a := range addresses {
		if a.Is4() {
			four++
		} else {
			six++
		}
	}
	return four <= 1 && six <= 1
}

// BootstrapKubeconfig is the kubeconfig with which a kubelet asks for its certificate.
func (v Values) BootstrapKubeconfig() string {
	cluster := map[string]any{"server": v.Server, "certificate-authority-data": []byte(v.CA)}
	if v.TLSServerName != "" {
		cluster["tls-server-name"] = v.TLSServerName
	}
	return encode(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "bootstrap",
		"clusters": []any{map[string]any{"name": "cluster", "cluster": cluster}},
		"users":    []any{map[string]any{"name": "bootstrap", "user": map[string]any{"token": v.Token}}},
		"contexts": []any{map[string]any{"name": "bootstrap", "context": map[string]any{"cluster": "cluster", "user": "bootstrap"}}},
	})
}

// KubeletConfiguration is the part of a kubelet's configuration that the cluster decides.
func (v Values) KubeletConfiguration() string { return v.KubeletConfigurationWith(nil) }

// KubeletConfigurationWith adds settings of the operating system. The cluster's have precedence.
func (v Values) KubeletConfigurationWith(system map[string]any) string {
	c := map[string]any{}
	maps.Copy(c, system)
	c["apiVersion"], c["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	c["authentication"] = map[string]any{
		"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}, "x509": map[string]any{"clientCAFile": CAPath},
	}
	c["authorization"] = map[string]any{"mode": "Webhook"}
	c["rotateCertificates"], c["serverTLSBootstrap"] = true, true
	if len(v.ClusterDNS) > 0 {
		c["clusterDNS"] = v.ClusterDNS
	}
	if v.ClusterDomain != "" {
		c["clusterDomain"] = v.ClusterDomain
	}
	if len(v.Taints) > 0 {
		c["registerWithTaints"] = v.Taints
	}
	return encode(c)
}

// encode returns JSON, which is YAML, too. Its keys are in order.
func encode(object map[string]any) string {
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		panic(err) // it has strings, lists and maps only
	}
	return string(text) + "\n"
}
