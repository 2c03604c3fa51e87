// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/join"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

const (
	// tokenTTL is how long a token is good for after it was made.
	tokenTTL = 2 * time.Hour
	// tokenRenewal is after which time a token is made anew whose machine has not joined. Two of them, and the time between two looks at the machines, are less than tokenTTL.
	tokenRenewal = tokenTTL / 4
)

// Lengths of the parts of a bootstrap token, by the API of Kubernetes.
const (
	tokenIDLength     = 6
	tokenSecretLength = 16
)

// Tokens derives bootstrap tokens. A host has one for each binding, and another one after each loss of its certificate, which no stored secret is needed for: each replica derives
// the same, and what was interrupted is repeated. It ends with the binding.
type Tokens struct{ key []byte }

// NewTokens derives from the key that the service signs machines' tokens with.
func NewTokens(secret []byte) (Tokens, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "muster bootstrap tokens", sha256.Size)
	if err != nil {
		return Tokens{}, fmt.Errorf("deriving the key of bootstrap tokens: %w", err)
	}
	return Tokens{key}, nil
}

// ID of the token of a host; it is no secret.
func (t Tokens) ID(h *domain.Host) string { return t.part("id", h, tokenIDLength) }

func (t Tokens) secret(h *domain.Host) string { return t.part("secret", h, tokenSecretLength) }

func (t Tokens) part(purpose string, h *domain.Host, length int) string {
	sum := hmac.New(sha256.New, t.key)
	_, _ = fmt.Fprintf(sum, "%s\n%s\n%s\n%s\n%s", purpose, h.InfraEnvID, h.HostID, h.ClusterID, h.Stamps.Binding)
	if rejoin := h.Node.Rejoin.Stamp; rejoin != "" {
		_, _ = fmt.Fprintf(sum, "\n%s", rejoin)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum.Sum(nil)))[:length]
}

// secretName is the name that Kubernetes wants for the Secret of a token.
func secretName(id string) string { return "bootstrap-token-" + id }

// Planes returns the control plane that a host of a cluster runs, with the kubeconfig of its node manager; nil for clusters without one.
type Planes func(ctx context.Context, by domain.Principal, clusterID string) (plane *domain.ControlPlane, nodeManager string, err error)

// Joiner makes what hosts join with.
type Joiner struct {
	// Reader reads ClusterDeployments and Secrets of node access.
	Reader client.Reader
	// Planes are the control planes that the service made.
	Planes Planes
	// NoteNode keeps the name of the Node that a host is to become, which its release goes by.
	NoteNode func(ctx context.Context, key domain.HostKey, clusterID string, node domain.Node) error
	// Tokens of hosts.
	Tokens Tokens
	// Now tells the time.
	Now func() time.Time
}

// Values are what the host joins its cluster with; nil where the cluster takes no nodes. Its Node is noted first. The token is in the cluster when they are returned, unless the installation is to bring up
// the control plane: then a Watcher makes it.
func (j *Joiner) Values(ctx context.Context, h *domain.Host, c *domain.Cluster) (*join.Values, error) {
	access, err := j.access(ctx, c)
	if err != nil || access == nil {
		return nil, err
	}
	values, err := j.valuesOf(access, h, c)
	if err == nil {
		err = j.NoteNode(ctx, h.HostKey, c.ID, domain.Node{Name: values.NodeName})
	}
	if err != nil || c.ControlPlane.Awaits(h) {
		return values, err
	}
	cluster, err := access.Client()
	if err != nil {
		return nil, domain.Refuse(domain.Conflict, "NodeAccessInvalid", "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := j.Tokens.Make(ctx, cluster, h, j.Now()); err != nil {
		return nil, fmt.Errorf("making a bootstrap token in cluster %s/%s: %w", c.Kube.Namespace, c.Kube.Name, err)
	}
	return values, nil
}

// Rejoin are what a host joins its cluster with again whose kubelet lost its certificate; nil where the cluster takes no nodes. A Watcher makes the token, if the cluster still has
// the Node.
func (j *Joiner) Rejoin(ctx context.Context, h *domain.Host, c *domain.Cluster) (*join.Values, error) {
	access, err := j.access(ctx, c)
	if err != nil || access == nil {
		return nil, err
	}
	return j.valuesOf(access, h, c)
}

// access is the node access of a cluster, nil where it takes no nodes.
func (j *Joiner) access(ctx context.Context, c *domain.Cluster) (*Access, error) {
	if c.Kube == (domain.KubeRef{}) {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: c.Kube.Namespace, Name: c.Kube.Name}
	deployment := &hivev1.ClusterDeployment{}
	if err := j.Reader.Get(ctx, key, deployment); err != nil {
		return nil, fmt.Errorf("reading ClusterDeployment %s: %w", key, err)
	}
	if string(deployment.UID) != c.ID {
		return nil, domain.Refuse(domain.Conflict, "ClusterDeploymentMissing", "ClusterDeployment %s was deleted and made again", key)
	}
	access, err := ReadAccess(ctx, j.Reader, deployment)
	if err == nil && access == nil && c.ControlPlane != nil {
		access, err = j.own(ctx, c)
	}
	return access, err
}

// own is the access to a cluster whose control plane the service made.
func (j *Joiner) own(ctx context.Context, c *domain.Cluster) (*Access, error) {
	plane, nodeManager, err := j.Planes(ctx, domain.Kubernetes, c.ID)
	if err != nil || plane == nil {
		return nil, err
	}
	access, err := OwnAccess(plane, nodeManager)
	if err != nil {
		return nil, domain.Refuse(domain.Conflict, "CannotJoin", "the control plane of cluster %s cannot be joined: %v", c.Name, err)
	}
	return access, nil
}

// valuesOf are what a host joins by access.
func (j *Joiner) valuesOf(access *Access, h *domain.Host, c *domain.Cluster) (*join.Values, error) {
	values := access.values
	values.NodeName, values.NodeIPs = NodeName(h), h.Addressing.IPs()
	if member := c.ControlPlane.Member(h); member != nil { // the kubelet must not choose the address of the API, which is on the machine at times
		values.NodeIPs = []netip.Addr{member.Address}
		for _, address := range h.Addressing.IPs() {
			if address.Is4() != member.Address.Is4() {
				values.NodeIPs = append(values.NodeIPs, address)
			}
		}
	}
	values.Labels, _ = join.SplitLabels(h.NodeLabels) // the Watcher sets the others
	for _, taint := range h.NodeTaints {
		values.Taints = append(values.Taints, join.Taint(taint))
	}
	if plane := c.ControlPlane; plane.RunsOn(h) && plane.Shared {
		values.Taints = append(values.Taints, join.Taint{Key: ControlPlaneLabel, Effect: string(corev1.TaintEffectNoSchedule)})
	}
	if access.RefusesName(h) {
		return nil, domain.Refuse(domain.Conflict, "CannotJoin", "host %s cannot join cluster %s: %s is a name of its API server or of a Service; give the host another name", h.HostID, c.Name, values.NodeName)
	}
	values.Token = j.Tokens.ID(h) + "." + j.Tokens.secret(h)
	if err := values.Validate(); err != nil {
		return nil, domain.Refuse(domain.Conflict, "CannotJoin", "host %s cannot join cluster %s: %v", h.HostID, c.Name, err)
	}
	return &values, nil
}

// ControlPlaneLabel is of Nodes that run a control plane, and of their taint.
const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// NodeName is the name of a host as a node.
func NodeName(h *domain.Host) string { return strings.ToLower(h.Hostname()) }

// Make makes the token of a host in its cluster anew, so that it is good for its whole time from now on. The node manager can read no Secret.
func (t Tokens) Make(ctx context.Context, cluster kubernetes.Interface, h *domain.Host, now time.Time) error {
	id := t.ID(h)
	secrets := cluster.CoreV1().Secrets(metav1.NamespaceSystem)
	if err := secrets.Delete(ctx, secretName(id), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretName(id)},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": t.secret(h), "usage-bootstrap-authentication": "true", "auth-extra-groups": hivev1.NodeBootstrapGroup,
			"expiration": now.Add(tokenTTL).UTC().Format(time.RFC3339), "description": "host " + h.HostID + " of Muster",
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // by another replica, a moment ago
		return nil
	}
	return err
}
