// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provision is the vocabulary shared by everything that runs hosted clusters and the controller that asks for
// them: which cluster is meant, what was observed of it, what went wrong, and how to reach it. It runs nothing itself.
//
// The port is declared where it is used, in package controller/clusterdeployment; what an implementation must do is
// pinned by the cases of package provision/contract.
package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ClusterRef identifies one hosted cluster for its whole life. The UID is part of the identity: a ClusterDeployment that was deleted
// and made again under the same name is another cluster and must never see the data of the first.
type ClusterRef struct {
	// Namespace of the ClusterDeployment.
	Namespace string
	// Name of the ClusterDeployment.
	Name string
	// UID of the ClusterDeployment. Unique over all clusters, so a runtime may use it alone as the key of what it keeps.
	UID types.UID
}

// String returns namespace/name, for messages and logs.
func (r ClusterRef) String() string { return r.Namespace + "/" + r.Name }

// NamespacedName returns the key of the ClusterDeployment.
func (r ClusterRef) NamespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// uidLength is how much of the UID stands in names: enough to tell namesakes in one namespace apart.
const uidLength = 13

// ObjectName is the name of the objects beside the ClusterDeployment in which a runtime keeps the cluster, among them the Secret with its keys.
func (r ClusterRef) ObjectName() string {
	return "hosted-" + string(r.UID[:min(len(r.UID), uidLength)])
}

// ServingName is the name of the Secret with what is renewed: the serving certificate and the administrator's credentials.
func (r ClusterRef) ServingName() string { return r.ObjectName() + "-serving" }

// Spec is what the first start of a cluster needs to know besides its identity. Later starts keep what the first one laid down.
type Spec struct {
	// ClusterName is the short name of the cluster; it names the cluster, user and context of the kubeconfig.
	ClusterName string
	// BaseDomain is the DNS domain of the cluster, for runtimes that publish an address below it. It may be empty.
	BaseDomain string
	// Audit is how much of each request the API server logs; "" for none. Each start takes it as it is then.
	Audit string
	// Nodes is the network of a cluster that takes nodes; nil for one that takes none.
	Nodes *NodeNetwork
	// PullSecret is the Secret beside the ClusterDeployment with credentials for registries; "" for none. Runtimes that pull images use it, and each start takes it as it is then.
	PullSecret string
}

// NodeNetwork are the networks of a cluster that takes nodes.
type NodeNetwork struct {
	// PodCIDR holds the addresses of pods, ServiceCIDR those of Services.
	PodCIDR, ServiceCIDR netip.Prefix
	// ClusterDNS is the address of the resolver, in ServiceCIDR.
	ClusterDNS netip.Addr
}

// State is what a runtime found of one hosted cluster.
type State string

// The states of a hosted cluster. StateFailed and StateUnreachable always come with a Problem.
const (
	// StateAbsent: neither data nor anything running.
	StateAbsent State = "Absent"
	// StateStopped: data is kept, nothing runs and nothing is meant to.
	StateStopped State = "Stopped"
	// StateStarting: it was started and its /readyz has not answered with success since. With a Problem: something is in the way, and the runtime
	// itself tries on, as a kubelet does.
	StateStarting State = "Starting"
	// StateReady: /readyz answered with success during this very observation. With a Problem: it answers reads, and refuses writes.
	StateReady State = "Ready"
	// StateUnreachable: it runs and was ready since it was started, and /readyz does not answer with success now.
	StateUnreachable State = "Unreachable"
	// StateFailed: it was started and it is not fully running; it stays so until Start is called again. Data is kept.
	StateFailed State = "Failed"
	// StateStopping: it was asked to stop and something of it still runs.
	StateStopping State = "Stopping"
	// StateDeleting: it is being deleted and something of it is still there.
	StateDeleting State = "Deleting"
)

// Observation is what a runtime found of one cluster, at the moment of asking.
type Observation struct {
	State State
	// ID identifies the data, as a random UUID: made by the first Start, the same until Delete. A ClusterDeployment that records another ID
	// belongs to data that is not here. Empty when the state is Absent.
	ID string
	// Started says that it was started and not stopped since, whatever became of it: a cluster whose programs ended with the operator is Stopped, and was started. It outlives the operator.
	Started bool
	// URL of the API server, https://host:port. Empty while it is not known.
	URL string
	// DataMissing is one sentence about data that ID identifies and that was lost, although the identity is there; empty where it was not. A cluster that was never ready has had none, whatever is said of it.
	DataMissing string
	// DataRefused says that the programs of a cluster with DataMissing were started, find no data and refuse to begin without it. They are left to try on, and find what is restored.
	DataRefused bool
	// DataAtRisk is one sentence about data that is there and goes when the cluster ends, as by Stop; empty where it stays.
	DataAtRisk string
	// Version of Kubernetes that the API server reports, as v1.36.3. Empty unless the state is Ready.
	Version string
	// Since is when the state was entered, as far as the runtime knows; zero when it does not, as after a restart of the operator.
	Since time.Time
	// Failures counts the failed starts and deaths since the cluster was last ready; 0 once it is Ready. One that dies soon after it became ready goes on
	// counting from where it was. A runtime may forget it over a restart of the operator.
	Failures int32
	// Outdated says that what the cluster is reached with, its serving certificate and the administrator's credentials, does not exist yet, ends soon, or is for another
	// address than the cluster has now; or that what leads connections to it and keeps others from it is not as it was made. Renew makes it anew.
	Outdated bool
	// Superseded says that a program keeps a cluster that starts from becoming ready, and that the next start runs other programs than those that it was started with. What
	// runs stays as it is until then.
	Superseded bool
	// AccessID is the ID of the credentials that Access returns; empty when the runtime does not renew them.
	AccessID string
	// Problem says why the cluster is not what was asked for. It is nil when nothing is wrong.
	Problem *Problem
}

// Access is how the administrator reaches a hosted cluster. It is made by the first Start. The password is the same until Delete; the kubeconfig changes when Renew makes it anew.
// It prints as a placeholder, so that it does not reach a log or an error.
type Access struct {
	// Kubeconfig of the administrator, complete: address, authority, credentials.
	Kubeconfig []byte
	// NodeManager is the kubeconfig of the identity that manages nodes; nil if the cluster takes none.
	NodeManager []byte
	// Password of the administrator. The API server takes it as a bearer token of a member of system:masters.
	Password string
}

// ID identifies the credentials without telling them.
func (a Access) ID() string {
	sum := sha256.Sum256(slices.Concat([]byte(a.Password+"\n"), a.Kubeconfig, a.NodeManager))
	return hex.EncodeToString(sum[:16])
}

// String hides the credentials.
func (Access) String() string { return "[credentials]" }

// GoString hides the credentials.
func (Access) GoString() string { return "[credentials]" }

// Format hides the credentials, whatever the verb.
func (Access) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[credentials]")) }

// MarshalLog hides the credentials from structured loggers.
func (Access) MarshalLog() any { return "[credentials]" }

// MarshalJSON hides the credentials from loggers that know no better.
func (Access) MarshalJSON() ([]byte, error) { return []byte(`"[credentials]"`), nil }
