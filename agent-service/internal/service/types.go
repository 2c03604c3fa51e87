// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service is the domain of discovered hosts: InfraEnvs, hosts, clusters and events. REST and custom resources
// are two doors to it; both call what API lists and nothing else.
package service

import (
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// KubeRef names the custom resource of an object, empty without one.
type KubeRef struct {
	Namespace string
	Name      string
}

// Proxy is how the discovery system and the installed one reach the network.
type Proxy struct {
	HTTP  string
	HTTPS string
	// NoProxy is comma separated.
	NoProxy string
}

// InfraEnv boots any number of hosts with one image.
type InfraEnv struct {
	// ID is a UUID. That of a custom resource is the resource's UID, so that making it twice makes one.
	ID   string
	Name string
	Owner
	Kube KubeRef
	InfraEnvSettings

	Generations
	// Deleting is set from the beginning of a deletion: no host registers any more, and none is bound.
	// DeletingForced is set where hosts that are bound go with it.
	Deleting       bool `json:",omitempty"`
	DeletingForced bool `json:",omitempty"`
	// ImageUpdatedAt is when something changed that the image shows: Last-Modified of downloads.
	ImageUpdatedAt time.Time
	CreatedAt      time.Time
	UpdatedAt      time.Time
	Revision       int64
}

// Generations are what tokens carry: those of older generations open nothing.
type Generations struct {
	// ImageGeneration is of tokens that stand in images and their addresses.
	ImageGeneration int64
	// HostGeneration is of tokens that are narrowed to a host.
	HostGeneration int64
}

// Stamps are what the tokens of a host carry beside the HostGeneration of its InfraEnv. They are random, so that those of a host that was deleted, or lost with its data,
// never come back.
type Stamps struct {
	// Registration changes with each registration. Tokens of agents carry it, those of installed systems do not.
	Registration string `json:",omitempty"`
	// Binding changes when a binding ends, and when the machine boots the discovery image to begin anew. Tokens of agents and of installed systems carry it.
	Binding string `json:",omitempty"`
}

// newStamp is one that no token carries yet.
func newStamp() string { return rand.Text()[:16] }

// Accept is true for what a token carries that has not ended.
func (s Stamps) Accept(carried Stamps) bool {
	return carried.Binding == s.Binding && (carried.Registration == "" || carried.Registration == s.Registration)
}

// InfraEnvSettings are what a user states of an InfraEnv.
type InfraEnvSettings struct {
	// ClusterID binds hosts at registration, empty for hosts that are free. Immutable.
	ClusterID string
	// OSImageVersion is the version of the discovery image, empty for the default.
	OSImageVersion string
	// CPUArchitecture is x86_64 (default) or aarch64. Immutable.
	CPUArchitecture string
	// ImageType is full-iso (default), minimal-iso or disconnected-iso.
	ImageType string
	// PullSecret is for the discovery image only. It is a secret: no reply shows it.
	PullSecret           string
	Proxy                Proxy
	NTPSources           string
	AdditionalNTPSources string
	SSHAuthorizedKey     string
	// StaticNetworkConfig is a JSON list of {network_yaml, mac_interface_map[{mac_address, logical_nic_name}]}.
	StaticNetworkConfig          json.RawMessage `json:",omitempty"`
	IgnitionConfigOverride       string
	KernelArguments              []KernelArgument
	AdditionalTrustBundle        string
	RendezvousIP                 string
	NetworkDiscoveryDelaySeconds int64
	IPXEScriptType               string
	// MirrorRegistry is the content of registries.conf, and MirrorRegistryCA the certificates that go with it.
	MirrorRegistry   string
	MirrorRegistryCA string
	// AutoApprove makes hosts approved when they register.
	AutoApprove bool
	// AgentLabels are put on the custom resources of hosts when these are made.
	AgentLabels map[string]string
}

// KernelArgument is one change to the kernel command line of the discovery image.
type KernelArgument struct {
	// Operation is append, replace or delete.
	Operation string `json:"operation"`
	Value     string `json:"value"`
}

// HostKey names a host: the same machine in another InfraEnv is another host.
type HostKey struct {
	InfraEnvID string
	HostID     string
}

// String is "infraEnv/host", for logs.
func (k HostKey) String() string { return k.InfraEnvID + "/" + k.HostID }

// Host is a machine that registered with an InfraEnv.
type Host struct {
	HostKey
	Owner
	// ClusterID is empty while the host is free.
	ClusterID string
	// DayTwo is true for hosts that join a cluster that is installed already (kind AddToExistingClusterHost), also where they were bound to it before.
	DayTwo         bool
	State          lifecycle.State
	StateInfo      string
	StateUpdatedAt time.Time
	AgentVersion   string
	MediaConnected bool
	RegisteredAt   time.Time
	CreatedAt      time.Time
	UpdatedAt      time.Time
	Bootstrap      bool
	// Attempts is how often the installation began again in this boot.
	Attempts        int `json:",omitempty"`
	Progress        Progress
	Validations     []validate.Result
	NTPSources      []validate.NTPSource
	InventoryAt     time.Time
	PreviousCluster string
	// FreeHostname is what a bound host is to be called when it is free again: what was requested before, not in the cluster.
	FreeHostname string `json:",omitempty"`
	// Summary is what is asked for often of the inventory.
	Summary hardware.Summary
	// Checks are what the agent found out when it was asked to try.
	Checks validate.Checks
	// Images is whether the cluster's image can be had, asked before an installation. ImagesDetail names the one that cannot.
	Images       validate.Check
	ImagesDetail string `json:",omitempty"`
	// Stamps are those of tokens that count.
	Stamps Stamps
	// Fingerprint and BootID are of the last registration.
	Fingerprint string
	BootID      string
	// Twin is what tells two machines apart that report as this host and send no fingerprint, TwinAt when the other one was heard last; empty where one does.
	Twin   string    `json:",omitempty"`
	TwinAt time.Time `json:",omitzero"`
	// Admission is of the image's token that the agent registered with, where it can take no token of its own; zero for others.
	Admission Generations
	// LogsState is requested, collecting, completed or timeout, empty before; LogsAt is since when.
	LogsState string
	LogsAt    time.Time
	HostSettings
	// Revision grows with each change of the row. It is what SpecSynced, lists and watches compare.
	Revision int64
}

// HostSettings are what a user states of a host.
type HostSettings struct {
	// Approved is needed for installation, not for binding.
	Approved bool
	// Role is auto-assign (default), master, worker or arbiter.
	Role                    string
	RequestedHostname       string
	NodeLabels              map[string]string
	MachineConfigPool       string
	InstallationDiskID      string
	InstallationDiskPath    string
	SkipFormattingDisks     []string
	InstallerArgs           string
	IgnitionConfigOverrides string
	// IgnitionEndpointToken is a secret: replies show only that it is set.
	IgnitionEndpointToken       string
	IgnitionEndpointHTTPHeaders map[string]string
}

// ofToday is true where the agent is one of today's system: it knows no tokens of its own and no images of disks.
func (h *Host) ofToday() bool { return h.BootID == "" && h.AgentVersion != "" }

// Hostname is the name that the host gets: the requested one, else the one that it reports.
func (h *Host) Hostname() string {
	if h.RequestedHostname != "" {
		return h.RequestedHostname
	}
	return h.Summary.Hostname
}

// Progress is how far an installation is.
type Progress struct {
	// Stage is one of lifecycle.Stages, empty before an installation.
	Stage lifecycle.Stage `json:"stage,omitempty"`
	Info  string          `json:"info,omitempty"`
	// Percentage is of the whole installation, 0 to 100.
	Percentage     int       `json:"percentage,omitempty"`
	StageStartedAt time.Time `json:"stageStartedAt,omitzero"`
	StageUpdatedAt time.Time `json:"stageUpdatedAt,omitzero"`
}

// Cluster is what hosts are bound to.
type Cluster struct {
	// ID is a UUID; that of a custom resource is the UID of its ClusterDeployment.
	ID   string
	Name string
	Owner
	Kube KubeRef
	ClusterSettings
	Status             lifecycle.ClusterState
	StatusInfo         string
	StatusUpdatedAt    time.Time
	InstallStartedAt   time.Time
	InstallCompletedAt time.Time
	Preparation        Preparation `json:",omitzero"`
	// RestoredAt is when the cluster came back as installed after the service lost its data, zero for others.
	RestoredAt time.Time `json:",omitzero"`
	// Kubeconfig is a secret, kept once the cluster is installed.
	Kubeconfig string
	// HostCount, ReadyHostCount and InstalledHostCount are of the hosts that are bound.
	HostCount          int
	ReadyHostCount     int
	InstalledHostCount int
	CreatedAt          time.Time
	UpdatedAt          time.Time
	Revision           int64
}

// Preparation is what became of the checks before an installation, until they pass or what is stated of the cluster changes.
type Preparation struct {
	// Failures is how often they failed in a row. Why says of the last time which hosts failed, and of what.
	Failures int    `json:",omitempty"`
	Why      string `json:",omitempty"`
	// RetryAt is when an installation may begin again by itself.
	RetryAt time.Time `json:",omitzero"`
	// Cancelled: a user ended them. The installation does not begin again by itself.
	Cancelled bool `json:",omitempty"`
}

// ClusterSettings are what a user states of a cluster.
type ClusterSettings struct {
	// OpenshiftVersion chooses the image that agents write.
	OpenshiftVersion string
	CPUArchitecture  string
	BaseDNSDomain    string
	// ControlPlaneCount and WorkerCount are how many hosts the installation waits for. Default 3 and 0.
	ControlPlaneCount int
	WorkerCount       int
	MachineNetworks   []string
	ClusterNetworks   []string
	ServiceNetworks   []string
	APIVIPs           []string
	IngressVIPs       []string
	// UserManagedNetworking: addresses of the API are not ours to check.
	UserManagedNetworking bool
	// PullSecret is for the installed cluster only. It is a secret: nothing shows it but the first-boot data, which an agent gets while it installs.
	PullSecret           string
	SSHPublicKey         string
	Proxy                Proxy
	AdditionalNTPSources string
	// Imported clusters are installed already and take hosts (kind AddHostsCluster).
	Imported bool
	// OpenshiftClusterID is what an imported cluster calls itself. It proves nothing: its ID here is another one.
	OpenshiftClusterID string `json:",omitempty"`
	// HoldInstallation keeps a cluster that is ready from installing by itself; Install starts it.
	HoldInstallation bool
	// IgnoredValidations are ids that do not block. connected and has-inventory cannot be ignored.
	IgnoredValidations []string
}

// Event tells a change. It is written in the change's transaction; repeats are folded into a count.
type Event struct {
	ID int64
	// Position grows with each event that is written or repeated. Streams go on after the last one that they saw.
	Position int64
	// Name is of the event catalogue: host_registration_succeeded …
	Name       string
	InfraEnvID string
	HostID     string
	ClusterID  string
	Severity   string
	Category   string
	Message    string
	// At is when it happened first, LastAt last.
	At     time.Time
	LastAt time.Time
	Count  int64
	// ForInfraEnv and ForCluster say who sees it: the administrator of the InfraEnv, the creator of the cluster.
	ForInfraEnv bool
	ForCluster  bool
	RequestID   string
	Props       json.RawMessage
	// Reported events come from the agent of the host. All others are written by the service.
	Reported bool
}

// ReportedEvents is how many events are kept of those that one host reported.
const ReportedEvents = 100

// Severities of events.
const (
	Info     = "info"
	Warning  = "warning"
	Failure  = "error"
	Critical = "critical"
)

// Instructions are the answer to an agent's poll.
type Instructions struct {
	Steps []agentproto.Step
	// NextSeconds is how long the agent may wait before it asks again.
	NextSeconds int
	// Exit asks the agent to end (it is started again and registers). Never for bind and unbind.
	Exit bool
	// Revision is of the host's row when these were made.
	Revision int64
	// Ended is true where the token of the poll ended while it was held: there is nothing but the step that stops an installation.
	Ended bool
	// Held is how long the poll was held open.
	Held time.Duration
}
