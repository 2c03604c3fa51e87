// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeobjects holds the objects that a cluster needs inside it so that machines can join it as nodes: rights of bootstrap tokens, of nodes and of the node manager, the
// limits of the latter, and the resolver. pool-operator applies them in hosted clusters, and machines that run a control plane in their own.
package nodeobjects

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/netip"
	"text/template"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// DefaultDNSImage is the image of CoreDNS.
const DefaultDNSImage = "registry.k8s.io/coredns/coredns:v1.13.1"

// Identities in a control plane that takes nodes.
const (
	// NodeManagerUser makes bootstrap tokens, approves certificate requests of nodes, and deletes nodes.
	NodeManagerUser = "muster:node-manager"
	// KubeletClientsGroup is the group of the API server as a client of kubelets.
	KubeletClientsGroup = "muster:kubelet-clients"
)

//go:embed objects.yaml
var source string

var objects = template.Must(template.New("objects.yaml").Option("missingkey=error").Parse(source))

// Settings are what the objects depend on.
type Settings struct {
	// ClusterDNS is the address of the resolver, one of the network of Services.
	ClusterDNS netip.Addr
	// DNSImage is the image of CoreDNS.
	DNSImage string
}

// Render returns the objects as documents of YAML, in the order in which they are applied.
func Render(s Settings) ([]byte, error) {
	var text bytes.Buffer
	err := objects.Execute(&text, map[string]string{
		"BootstrapGroup":        hivev1.NodeBootstrapGroup,
		"BootstrapGroupEncoded": base64.StdEncoding.EncodeToString([]byte(hivev1.NodeBootstrapGroup)),
		"KubeletClientsGroup":   KubeletClientsGroup,
		"NodeManager":           NodeManagerUser,
		"ClusterDNS":            s.ClusterDNS.String(),
		"DNSImage":              s.DNSImage,
		"Domain":                hivev1.DefaultClusterDomain,
	})
	if err != nil {
		return nil, fmt.Errorf("rendering the objects of clusters with nodes: %w", err)
	}
	return text.Bytes(), nil
}
