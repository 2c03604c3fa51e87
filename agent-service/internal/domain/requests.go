// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// FileInfo is a file that is kept with a cluster.
type FileInfo struct {
	Name      string
	Size      int64
	UpdatedAt time.Time
}

// NewInfraEnv is a request for an InfraEnv.
type NewInfraEnv struct {
	// ID is empty for a random one.
	ID   string
	Name string
	Kube KubeRef
	// Owner overrules the principal's where the principal is an administrator.
	Owner *Owner
	// ImageGeneration is the first one of its tokens, 0 for 1: one that the service lost goes on where it was.
	ImageGeneration int64
	// Restored is true for one that the service lost with its data.
	Restored bool
	InfraEnvSettings
}

// NewCluster is a request for a cluster.
type NewCluster struct {
	ID    string
	Name  string
	Kube  KubeRef
	Owner *Owner
	// Restored is not nil for a cluster that was installed before the service lost its data.
	Restored *Restored
	ClusterSettings
}

// NewHost is what an agent says of itself when it registers.
type NewHost struct {
	HostID       string
	AgentVersion string
	// Fingerprint tells two machines with equal serials apart: a hash over all MAC addresses and disks, empty for agents
	// that do not send one.
	Fingerprint string
	// BootID is of the running kernel, empty for agents that do not send one. The same boot registers without losing anything.
	BootID string
	// ImageGeneration is of the image's token that the request carried, 0 for other tokens.
	ImageGeneration int64
	// Source is the address that the request came from, for messages about conflicts.
	Source string
}

// LargestPage is the largest limit of a page.
const LargestPage = 5000

// Page is a part of a list.
type Page struct {
	// Limit is at most LargestPage; 0 means 1000.
	Limit  int
	Offset int
}

// WholeCluster is a page with all hosts of a cluster: Kubernetes has at most so many nodes in one.
var WholeCluster = Page{Limit: 5000}

// HostFilter chooses hosts. Empty fields do not count.
type HostFilter struct {
	InfraEnvID string
	ClusterID  string
	HostID     string
	Roles      []string
	States     []lifecycle.State
	Unbound    bool
	// Search is a part of a name, id, serial number, MAC address or address, whatever the case.
	Search string
	// Selector is of the labels of hosts, nil for all.
	Selector labels.Selector
	Page
}

// InfraEnvFilter chooses InfraEnvs.
type InfraEnvFilter struct {
	ClusterID string
	Owner     string
	Kube      *KubeRef
	// Deleting are those whose deletion was begun.
	Deleting bool
	Page
}

// ClusterFilter chooses clusters.
type ClusterFilter struct {
	Owner string
	Kube  *KubeRef
	// Search is a part of the name, whatever its case.
	Search string
	States []lifecycle.ClusterState
	Page
}

// EventFilter chooses events. One of InfraEnvID and ClusterID is needed by those who are no administrators; each shows
// what its owner may see.
type EventFilter struct {
	InfraEnvID string
	ClusterID  string
	HostIDs    []string
	Severities []string
	Categories []string
	// Names are those of the event catalogue.
	Names []string
	// Message is a part of the message, whatever the case.
	Message string
	// ClusterLevel adds events of the cluster itself when HostIDs chooses hosts.
	ClusterLevel bool
	// DeletedHosts adds events of hosts that are not there any more.
	DeletedHosts bool
	// Descending is newest first.
	Descending bool
	// AfterPosition shows only events that were written or repeated after the given position, in the order of positions; nil all, in the order of their times.
	AfterPosition *int64
	Page
}

// List is a page of a list and how many there are in all.
type List[T any] struct {
	Items []T
	Total int
}

// DryRun answers "would this host be valid in that cluster, and if not why".
type DryRun struct {
	Valid bool
	// Reason is why the request itself would be refused (wrong state, architecture, cluster not accepting), else empty.
	Reason  string
	Message string
	// State is the one that the host would have.
	State       lifecycle.State
	Validations []validate.Result
}

// ProgressReport is what an agent or an installed system tells of its installation.
type ProgressReport struct {
	Stage lifecycle.Stage
	Info  string
}

// ChangeKind is what a Change is about.
type ChangeKind string

// Kinds of changes.
const (
	InfraEnvChanged ChangeKind = "InfraEnv"
	HostChanged     ChangeKind = "Host"
	ClusterChanged  ChangeKind = "Cluster"
	// EventAdded is an event that comes with no other change.
	EventAdded ChangeKind = "Event"
	// EverythingChanged says that changes may have been missed: list again.
	EverythingChanged ChangeKind = "Everything"
)

// Change names an object that was made, changed or deleted. Its current state is read with Get.
type Change struct {
	Kind ChangeKind
	// Host is set with HostChanged.
	Host HostKey
	// ID is of the InfraEnv or cluster; with HostChanged, of the InfraEnv.
	ID string
	// Quiet hosts appeared elsewhere: their polls from before do not count any more.
	Quiet bool `json:",omitempty"`
	// Gone hosts were deleted.
	Gone bool `json:",omitempty"`
}

// Seen is when an agent polled last.
type Seen struct {
	At time.Time
	// Connected is whether it counts as connected now.
	Connected bool
}

// Restored is what custom resources say of a cluster that was installed before the service lost its data.
type Restored struct {
	// InstalledAt is when the installation ended.
	InstalledAt time.Time
	// Kubeconfig is empty where it is not known any more.
	Kubeconfig string
}

// RestoredHost is what the status of a custom resource says of a host that was installed before the service lost its data.
type RestoredHost struct {
	// ClusterID is the installed cluster that the host is a part of.
	ClusterID string
	Role      string
	Bootstrap bool
	// DayTwo is true for a host that joined the cluster after its installation.
	DayTwo bool
	// InstalledAt is when the host reported that its system is up.
	InstalledAt time.Time
	// MACAddresses are those of the machine, in lower case: it is asked by them whether it boots its disk.
	MACAddresses []string
	// Hostname is what the machine called itself: its Node has that name where its user stated no other one. Addresses, with prefix length, are what its Node may serve at.
	Hostname  string
	Addresses []string
}

// Poll is the last one of a host.
type Poll struct {
	HostKey
	// Ago is how long it is over.
	Ago time.Duration
	// Saved is another number each time that it is saved.
	Saved int64
}
