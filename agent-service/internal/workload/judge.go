// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-io/muster/agent-service/internal/domain"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Names of users by the conventions of Kubernetes.
const (
	bootstrapUser = "system:bootstrap:"
	nodeUser      = "system:node:"
	nodesGroup    = "system:nodes"
)

// Machine is a host of the cluster, as far as certificates concern it.
type Machine struct {
	// Host is the machine's, and ClusterID the cluster that it is bound to.
	Host      domain.HostKey
	ClusterID string
	// NodeName is the name that its Node has.
	NodeName string
	// TokenID is that of its bootstrap token.
	TokenID string
	// Joining is true from the writing of its disk until the binding ends: only then its token opens anything.
	Joining bool
	// Addresses are those of its installed system, as far as they are known.
	Addresses []netip.Addr
	// NameReserved says that its name is one that no node has, see Access.RefusesName.
	NameReserved bool
	// Labels are those of its Node that its kubelet may not set.
	Labels map[string]string
	// MakeToken makes its bootstrap token in the cluster, for its whole time from then on; nil where the machine needs none any more.
	MakeToken func(ctx context.Context, cluster kubernetes.Interface) error
	// TokenMadeAt is a time after which its token was made with the first-boot data; zero where that was not done.
	TokenMadeAt time.Time
	// Joined says that the Node of that name is its own, as far as the service has kept that.
	Joined bool
	// Rejoins says that its token is for a Node that is there, and lost its certificate: it makes no Node that a user has deleted.
	Rejoins bool
}

// Verdict is what becomes of a certificate request.
type Verdict string

// The verdicts. Requests that concern no host of the service are left to others.
const (
	Leave   Verdict = "Leave"
	Approve Verdict = "Approve"
	Deny    Verdict = "Deny"
)

// judge decides about a certificate request. A bootstrap token gets a client certificate for the node that it was made for, and a node gets a
// serving certificate for its own name and addresses. Nodes are those of the cluster. The text says why.
func judge(request *certificatesv1.CertificateSigningRequest, machines []Machine, nodes knownNodes) (Verdict, string) {
	if decided(request) {
		return Leave, ""
	}
	switch request.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return judgeClient(request, machines, nodes)
	case certificatesv1.KubeletServingSignerName:
		return judgeServing(request, machines, nodes)
	}
	return Leave, ""
}

func decided(request *certificatesv1.CertificateSigningRequest) bool {
	return len(request.Status.Certificate) > 0 || slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
	})
}

// about is the machine that an approved request is about.
func about(request *certificatesv1.CertificateSigningRequest, machines []Machine) (Machine, domain.Certificate) {
	certificate := domain.Certificate{Name: request.Name, Type: "serving"}
	name := strings.TrimPrefix(request.Spec.Username, nodeUser)
	if request.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName {
		certificate.Type = "client"
	}
	i := slices.IndexFunc(machines, func(m Machine) bool { return m.NodeName == name || bootstrapUser+m.TokenID == request.Spec.Username })
	if i < 0 {
		return Machine{}, certificate
	}
	return machines[i], certificate
}

// knownNodes says what Nodes a cluster has.
type knownNodes interface {
	// has says whether there is a Node of that name, and taken whether it is Ready.
	has(name string) bool
	taken(name string) bool
	// owns says whether the Node of a machine's name is the machine's.
	owns(machine Machine) bool
}

func judgeClient(request *certificatesv1.CertificateSigningRequest, machines []Machine, nodes knownNodes) (Verdict, string) {
	id, ok := strings.CutPrefix(request.Spec.Username, bootstrapUser)
	if !ok || !slices.Contains(request.Spec.Groups, hivev1.NodeBootstrapGroup) {
		return Leave, "" // a node renews its certificate: the cluster approves that by itself
	}
	i := slices.IndexFunc(machines, func(m Machine) bool { return m.TokenID == id })
	if i < 0 || !machines[i].Joining {
		return Leave, "" // it stays unapproved; a host that is known a moment later is looked at again
	}
	machine := machines[i]
	asked, err := parse(request)
	switch {
	case err != nil:
		return Deny, err.Error()
	case asked.Subject.CommonName != nodeUser+machine.NodeName || !slices.Equal(asked.Subject.Organization, []string{nodesGroup}):
		return Deny, fmt.Sprintf("the bootstrap token is for node %s, and the request is for %q of %q", machine.NodeName, asked.Subject.CommonName, asked.Subject.Organization)
	case len(asked.DNSNames)+len(asked.IPAddresses)+len(asked.EmailAddresses)+len(asked.URIs) > 0:
		return Deny, "a client certificate of a node names no address"
	case !usages(request, certificatesv1.UsageClientAuth):
		return Deny, "the usages are not those of a client certificate of a node"
	case nodes.taken(machine.NodeName):
		return Deny, fmt.Sprintf("a Node %s is Ready already: give the host another name", machine.NodeName)
	case machine.Rejoins && !nodes.has(machine.NodeName):
		return Deny, fmt.Sprintf("the Node %s was deleted: release the host, and bind it again to use it", machine.NodeName)
	}
	return Approve, "the bootstrap token was made for this node"
}

func judgeServing(request *certificatesv1.CertificateSigningRequest, machines []Machine, nodes knownNodes) (Verdict, string) {
	name, ok := strings.CutPrefix(request.Spec.Username, nodeUser)
	i := slices.IndexFunc(machines, func(m Machine) bool { return m.NodeName == name })
	if !ok || i < 0 || !slices.Contains(request.Spec.Groups, nodesGroup) || !nodes.owns(machines[i]) {
		return Leave, "" // a node that others look after
	}
	machine := machines[i]
	asked, err := parse(request)
	switch {
	case err != nil:
		return Deny, err.Error()
	case asked.Subject.CommonName != nodeUser+name || !slices.Equal(asked.Subject.Organization, []string{nodesGroup}):
		return Deny, fmt.Sprintf("the request of node %s is for %q of %q", name, asked.Subject.CommonName, asked.Subject.Organization)
	case len(asked.EmailAddresses)+len(asked.URIs) > 0 || len(asked.DNSNames)+len(asked.IPAddresses) == 0:
		return Deny, "a serving certificate of a node may only have the name and addresses of the node"
	case !usages(request, certificatesv1.UsageServerAuth):
		return Deny, "the usages are not those of a serving certificate of a node"
	}
	for _, dns := range asked.DNSNames {
		if dns != name {
			return Deny, fmt.Sprintf("the request of node %s names %q", name, dns)
		}
		if machine.NameReserved {
			return Deny, fmt.Sprintf("%s is a name of the API server or of a Service: give the host another name", name)
		}
	}
	for _, ip := range asked.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		if !ok || !slices.Contains(machine.Addresses, address.Unmap()) {
			return Deny, fmt.Sprintf("the request of node %s names the address %s, which is not one of its host", name, ip)
		}
	}
	return Approve, "the node asks for its own name and addresses"
}

// parse reads the request proper. The API server has checked its signature's form only.
func parse(request *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(request.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, fmt.Errorf("spec.request is not one certificate request")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request cannot be read")
	}
	if err := asked.CheckSignature(); err != nil {
		return nil, fmt.Errorf("spec.request is not signed by its key")
	}
	return asked, nil
}

// usages says whether the request is for one purpose, as the signers of kubelets demand.
func usages(request *certificatesv1.CertificateSigningRequest, purpose certificatesv1.KeyUsage) bool {
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, purpose}
	for _, usage := range request.Spec.Usages {
		if !slices.Contains(allowed, usage) {
			return false
		}
	}
	return slices.Contains(request.Spec.Usages, purpose)
}
