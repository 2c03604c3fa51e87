// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/apis/nodeobjects"
)

// Secrets are what agent-service keeps of a control plane that it made.
type Secrets struct {
	// CAKey is the key of the cluster's authority; empty when the cluster is installed, as its machines have it then.
	CAKey string `json:"caKey,omitempty"`
	// Admin is the administrator's kubeconfig; empty when the cluster is installed, as it is kept with the cluster then.
	Admin string `json:"admin,omitempty"`
	// NodeManager is the kubeconfig of node access.
	NodeManager string `json:"nodeManager"`
	// Shared is what the machines of a group have in common; nil where one machine runs the control plane, and when the cluster is installed.
	Shared *join.Shared `json:"shared,omitempty"`
}

// String hides the secrets.
func (Secrets) String() string { return "[secrets of a control plane]" }

// GoString hides the secrets.
func (s Secrets) GoString() string { return s.String() }

// New makes the authority of a cluster whose API server has the URL, and the credentials for it.
func New(now time.Time, cluster, server string) (ca string, secrets Secrets, err error) {
	root, made, err := newAuthority(now, "kubernetes")
	if err != nil {
		return "", Secrets{}, err
	}
	ca, secrets.CAKey = string(made.certificate), string(made.key)
	for into, user := range map[*string]leaf{
		&secrets.Admin:       {user: "system:admin", group: "system:masters", usage: asClient},
		&secrets.NodeManager: {user: nodeobjects.NodeManagerUser, usage: asClient},
	} {
		credentials, err := root.issue(now, lifetime-clockSkew, user)
		if err != nil {
			return "", Secrets{}, err
		}
		content, err := kubeconfig(cluster, map[string]any{"server": server, "certificate-authority-data": made.certificate}, map[string]any{
			"client-certificate-data": credentials.certificate, "client-key-data": credentials.key,
		})
		if err != nil {
			return "", Secrets{}, err
		}
		*into = string(content)
	}
	return ca, secrets, nil
}

// NewShared makes what the machines of a group have in common.
func NewShared(now time.Time) (*join.Shared, error) {
	var shared join.Shared
	for name, into := range map[string]*join.Authority{"front-proxy-ca": &shared.FrontProxy, "etcd-ca": &shared.Etcd} {
		_, made, err := newAuthority(now, name)
		if err != nil {
			return nil, err
		}
		*into = join.Authority{CA: string(made.certificate), CAKey: string(made.key)}
	}
	key, err := newKey()
	shared.ServiceAccountKey = string(key)
	return &shared, err
}

// kubeconfig is that of one user of one cluster, which gives all of it a name.
func kubeconfig(name string, cluster, user map[string]any) ([]byte, error) {
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []any{map[string]any{"name": name, "cluster": cluster}},
		"users":    []any{map[string]any{"name": name, "user": user}},
		"contexts": []any{map[string]any{"name": name, "context": map[string]any{"cluster": name, "user": name}}},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig of cluster %s: %w", name, err)
	}
	return content, nil
}
