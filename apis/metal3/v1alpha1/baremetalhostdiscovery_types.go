// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HardwareDetail is a fact about a machine that can name a host.
// +kubebuilder:validation:Enum=hostname;ip;serial-number;boot-mac;provisioning-id
type HardwareDetail string

// Facts that can name a host.
const (
	// DetailHostname is the name that the machine gave itself during inspection.
	DetailHostname HardwareDetail = "hostname"
	// DetailIP is the address of the first interface that has one, "." and ":" written as "-".
	DetailIP HardwareDetail = "ip"
	// DetailSerialNumber is the serial number that the firmware reports.
	DetailSerialNumber HardwareDetail = "serial-number"
	// DetailBootMAC is the boot MAC in lower case, ":" written as "-".
	DetailBootMAC HardwareDetail = "boot-mac"
	// DetailProvisioningID is the UUID of the node in Ironic; it needs a prefix or a suffix.
	DetailProvisioningID HardwareDetail = "provisioning-id"
)

// ResourceNameTemplate says how a discovered host is named: prefix, then the detail, then suffix.
//
// +kubebuilder:validation:XValidation:rule="!(self.hardwareDetails == 'provisioning-id' || (has(self.fallback) && self.fallback.exists(d, d == 'provisioning-id'))) || (has(self.prefix) && size(self.prefix) > 0) || (has(self.suffix) && size(self.suffix) > 0)",message="provisioning-id alone would name hosts by a bare UUID, which other operators refuse: add a prefix or a suffix, for example prefix: node-"
type ResourceNameTemplate struct {
	// prefix is put before the detail.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9.-]*)?$`
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// suffix is put after the detail.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9.-]*[a-z0-9])?$`
	// +optional
	Suffix string `json:"suffix,omitempty"`
	// hardwareDetails is the detail that names the host: hostname, ip (of the first interface that has one, "." as "-"),
	// serial-number, boot-mac (":" as "-") or provisioning-id (the node's UUID in Ironic).
	// Letters are made lower case, other characters than a-z, 0-9, "." and "-" become "-", and the whole is cut to 253.
	HardwareDetails HardwareDetail `json:"hardwareDetails"`
	// expression is text with ${…} as in hostTemplate, which gives the detail instead, for example
	// "${hardware.systemVendor.manufacturer}-${hardware.systemVendor.serialNumber}". Where it cannot be evaluated, hardwareDetails and then fallback are tried.
	// The variable counter is the first number from 1 on that gives a free name: "${string(1000 + counter).substring(1)}".
	// +optional
	Expression TemplateValue `json:"expression,omitempty"`
	// fallback lists details to try in order when the detail is missing or a placeholder. The host then carries the
	// annotation discovery.metal3.io/name-from and an event says so. An empty list makes such a machine wait.
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:default={"boot-mac"}
	// +listType=atomic
	// +optional
	Fallback []HardwareDetail `json:"fallback"`
}

// HostTemplate is put on each host when it is created, never later.
type HostTemplate struct {
	// labels for the host. ${…} in a value is a CEL expression over the variables of selector; the result is made a legal
	// label value. Example: "vendor": "${hardware.systemVendor.manufacturer}".
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Labels map[string]TemplateValue `json:"labels,omitempty"`
	// annotations for the host, written like labels.
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Annotations map[string]TemplateValue `json:"annotations,omitempty"`
	// online says whether the machine should have power once it is managed. Unset: true.
	// +optional
	Online *bool `json:"online,omitempty"`
	// bootMode is how the machine boots.
	// +kubebuilder:validation:Enum=UEFI;UEFISecureBoot;legacy
	// +optional
	BootMode string `json:"bootMode,omitempty"`
	// rootDeviceHints choose the disk to install to.
	// +optional
	RootDeviceHints *RootDeviceHints `json:"rootDeviceHints,omitempty"`
	// automatedCleaningMode says what is wiped between two uses. Unset: metadata.
	// +kubebuilder:validation:Enum=metadata;disabled
	// +optional
	AutomatedCleaningMode string `json:"automatedCleaningMode,omitempty"`
	// externallyProvisioned says that something else installed the machines; nothing is written to their disks. It needs approval Manual.
	// +optional
	ExternallyProvisioned bool `json:"externallyProvisioned,omitempty"`
	// taints for the nodes that the hosts become.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	Taints []Taint `json:"taints,omitempty"`
	// bmc gives hosts their management controllers, so that users need not. A machine that reported no address gets none. A client that can report as a machine
	// chooses the address to which the credentials are sent: use it where the inspection network is trusted, or with approval Manual.
	// +optional
	BMC *BMCTemplate `json:"bmc,omitempty"`
}

// BMCTemplate gives a host its management controller.
type BMCTemplate struct {
	// address for the host, written like labels; the variable bmcAddress is what the machine reported, an IPv6 address in brackets. Example:
	// "redfish-virtualmedia://${bmcAddress}/redfish/v1/Systems/1".
	// +kubebuilder:validation:MinLength=1
	Address TemplateValue `json:"address"`
	// credentialsName is the Secret for hosts for which no entry of credentials is.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	CredentialsName string `json:"credentialsName,omitempty"`
	// credentials choose a Secret by machine; the first entry that is for the machine counts.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Credentials []BMCCredentials `json:"credentials,omitempty"`
	// disableCertificateVerification accepts any certificate of the management controller.
	// +optional
	DisableCertificateVerification bool `json:"disableCertificateVerification,omitempty"`
}

// BMCCredentials is the Secret for some machines.
type BMCCredentials struct {
	// selector is a CEL expression as in spec.selector; empty is for all.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Selector string `json:"selector,omitempty"`
	// macPrefix is how the boot MAC begins, for example "52:54:00"; empty is for all.
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{2}(:[0-9a-f]{2}){0,5}:?)?$`
	// +optional
	MACPrefix string `json:"macPrefix,omitempty"`
	// credentialsName is the Secret in the namespace of the host.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CredentialsName string `json:"credentialsName"`
}

// DiscoveryMode says what discovery does.
// +kubebuilder:validation:Enum=Discover;DryRun
type DiscoveryMode string

// Modes of discovery.
const (
	// ModeDiscover makes hosts.
	ModeDiscover DiscoveryMode = "Discover"
	// ModeDryRun says in the status which hosts would be made, and makes none.
	ModeDryRun DiscoveryMode = "DryRun"
)

// TemplateValue is text in which ${…} is replaced by the value of a CEL expression.
// +kubebuilder:validation:MaxLength=1024
type TemplateValue string

// Approval says who releases a discovered host.
// +kubebuilder:validation:Enum=Automatic;Manual
type Approval string

// Ways of approval.
const (
	// ApprovalAutomatic releases a host when credentials arrive.
	ApprovalAutomatic Approval = "Automatic"
	// ApprovalManual holds a host until a user sets ApprovedAnnotation to "true".
	ApprovalManual Approval = "Manual"
)

// NodeDeletion says what becomes of the node in Ironic when its host is deleted.
// +kubebuilder:validation:Enum=Delete;Keep
type NodeDeletion string

// Ways of node deletion.
const (
	// NodeDeletionDelete removes the node with the host.
	NodeDeletionDelete NodeDeletion = "Delete"
	// NodeDeletionKeep leaves the node; its machine then stays ignored.
	NodeDeletionKeep NodeDeletion = "Keep"
)

// Rediscovery says whether a machine whose host was deleted may become a host again.
// +kubebuilder:validation:Enum=Allow;Ignore
type Rediscovery string

// Ways of rediscovery.
const (
	// RediscoverAllow makes a host again when the machine reports again.
	RediscoverAllow Rediscovery = "Allow"
	// RediscoverIgnore keeps the machine away until its reservation is deleted.
	RediscoverIgnore Rediscovery = "Ignore"
)

// RateLimit bounds how many hosts a resource makes.
type RateLimit struct {
	// hostsPerMinute is the largest number of hosts created in a minute. Default 1200.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=1200
	// +optional
	HostsPerMinute int32 `json:"hostsPerMinute,omitempty"`
	// maxHosts is the largest number of hosts that carry this resource's mark. Unset: no limit.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	MaxHosts *int32 `json:"maxHosts,omitempty"`
}

// IronicAuth is how Ironic wants to be asked.
// +kubebuilder:validation:Enum=None;HTTPBasic;Keystone
type IronicAuth string

// Ways to authenticate at Ironic.
const (
	AuthNone      IronicAuth = "None"
	AuthHTTPBasic IronicAuth = "HTTPBasic"
	AuthKeystone  IronicAuth = "Keystone"
)

// IronicReference says where Ironic is.
//
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || self.auth == 'None' || has(self.credentialsName)",message="auth HTTPBasic and Keystone need credentialsName: name a Secret with username and password in this namespace"
type IronicReference struct {
	// endpoint is the URL of Ironic's API without credentials, for example https://ironic.example:6385/v1/.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^@/?#]+(/[^?#]*)?$`
	Endpoint string `json:"endpoint"`
	// inspectorEndpoint is the URL of ironic-inspector, for Ironic before version 24. Unset: Ironic alone is asked.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^@/?#]+(/[^?#]*)?$`
	// +optional
	InspectorEndpoint string `json:"inspectorEndpoint,omitempty"`
	// auth is how to authenticate.
	// +kubebuilder:default=None
	// +optional
	Auth IronicAuth `json:"auth,omitempty"`
	// credentialsName is a Secret in the namespace of the resource with username and password; for Keystone also
	// authURL, userDomainName, projectName and projectDomainName; optionally ca.crt, tls.crt and tls.key.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:MinLength=1
	// +optional
	CredentialsName string `json:"credentialsName,omitempty"`
	// disableCertificateVerification accepts any certificate. An attacker in between can then read the credentials.
	// +optional
	DisableCertificateVerification bool `json:"disableCertificateVerification,omitempty"`
}

// BareMetalHostDiscoverySpec says which machines become hosts, and how.
// +kubebuilder:validation:XValidation:rule="!has(self.hostTemplate) || !has(self.hostTemplate.externallyProvisioned) || !self.hostTemplate.externallyProvisioned || (has(self.approval) && self.approval == 'Manual')",message="hostTemplate.externallyProvisioned needs approval: Manual, and approvalRule for the machines that a rule shall approve: otherwise any client that can report as a machine makes hosts that count as installed"
type BareMetalHostDiscoverySpec struct {
	// resourceNameTemplate names the hosts. Changing it does not touch hosts that exist.
	ResourceNameTemplate ResourceNameTemplate `json:"resourceNameTemplate"`
	// mode DryRun says in the status which hosts would be made, and makes none.
	// +kubebuilder:default=Discover
	// +optional
	Mode DiscoveryMode `json:"mode,omitempty"`
	// paused stops the creation of hosts. The machines that this resource would take wait; no other resource takes them.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// ironic is the Ironic to ask. Unset: the one that the operator was started with.
	// +optional
	Ironic *IronicReference `json:"ironic,omitempty"`
	// interval between two polls for news. The shortest interval of all resources of one Ironic counts. At least 1s.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="interval must be between 1s and 24h, for example 10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default="10s"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
	// resyncInterval between two readings of everything, which see what news cannot show: nodes that went, late ports.
	// At least 10s. A random tenth is added.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('168h')",message="resyncInterval must be between 10s and 168h, for example 15m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:default="15m"
	// +optional
	ResyncInterval *metav1.Duration `json:"resyncInterval,omitempty"`
	// hostTemplate is put on each host when it is created.
	// +optional
	HostTemplate HostTemplate `json:"hostTemplate,omitempty"`
	// selector is a CEL expression that says which machines this resource takes; empty takes all. Variables: hardware (as in
	// HardwareData), bootMAC, bmcAddress (as reported), node {uuid, name, driver, state, autoDiscovered}. A machine on which
	// it fails is not taken. Example: hardware.ramMebibytes >= 65536 && bootMAC.startsWith("52:54:").
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Selector string `json:"selector,omitempty"`
	// approval Manual holds each host until a user sets the annotation discovery.metal3.io/approved to "true".
	// +kubebuilder:default=Automatic
	// +optional
	Approval Approval `json:"approval,omitempty"`
	// approvalRule is a CEL expression as in selector. With approval Manual, machines for which it is true need no approval by a user.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	ApprovalRule string `json:"approvalRule,omitempty"`
	// rateLimit bounds how many hosts are created.
	// +kubebuilder:default={}
	// +optional
	RateLimit RateLimit `json:"rateLimit,omitempty"`
	// nodeDeletion says what becomes of the node in Ironic when a host of this resource is deleted. It is fixed for a host
	// when the host is created.
	// +kubebuilder:default=Delete
	// +optional
	NodeDeletion NodeDeletion `json:"nodeDeletion,omitempty"`
	// rediscover Ignore keeps machines away whose hosts were deleted. It is fixed for a host when the host is created.
	// +kubebuilder:default=Allow
	// +optional
	Rediscover Rediscovery `json:"rediscover,omitempty"`
	// duplicateChecks says which identities tell machines apart.
	// +optional
	DuplicateChecks DuplicateChecks `json:"duplicateChecks,omitempty"`
}

// DuplicateCheck says whether machines that share an identity are taken for one.
// +kubebuilder:validation:Enum=Enforce;Ignore
type DuplicateCheck string

// Ways to check for duplicates.
const (
	// DuplicateEnforce refuses a machine whose identity stands in another host.
	DuplicateEnforce DuplicateCheck = "Enforce"
	// DuplicateIgnore takes it as another machine.
	DuplicateIgnore DuplicateCheck = "Ignore"
)

// DuplicateChecks says which identities tell machines apart. A MAC address always does.
type DuplicateChecks struct {
	// serialNumber Ignore takes machines that report one serial number, such as twins in one chassis, as several machines.
	// +kubebuilder:default=Enforce
	// +optional
	SerialNumber DuplicateCheck `json:"serialNumber,omitempty"`
	// bmcAddress Ignore takes machines behind one management controller, such as the sleds of a chassis, as several machines.
	// +kubebuilder:default=Enforce
	// +optional
	BMCAddress DuplicateCheck `json:"bmcAddress,omitempty"`
}

// DiscoveryCounts says how many machines are in which situation.
type DiscoveryCounts struct {
	// nodes is the number of nodes that Ironic knows.
	Nodes int32 `json:"nodes"`
	// read is the number of nodes of which everything was read that is needed to decide about them. It grows to nodes while a large fleet is read for
	// the first time.
	// +optional
	Read int32 `json:"read"`
	// known is the number of nodes that belong to a host, made by discovery or by a user.
	Known int32 `json:"known"`
	// hosts is the number of hosts that this resource made.
	Hosts int32 `json:"hosts"`
	// lost is the number of hosts that this resource made and whose node Ironic does not know any more.
	// +optional
	Lost int32 `json:"lost,omitempty"`
	// waiting is the number of machines that will become hosts of this resource, or whose data is not whole.
	Waiting int32 `json:"waiting"`
	// refused is the number of machines that do not become hosts although no resource rules them out.
	Refused int32 `json:"refused"`
	// ignored is the number of machines that are kept away because their host was deleted.
	Ignored int32 `json:"ignored"`
	// notSelected is the number of machines that this resource leaves to others.
	NotSelected int32 `json:"notSelected"`
}

// ReasonCount says how many machines wait or are refused for one reason.
type ReasonCount struct {
	// reason is one word out of a closed set.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// count of machines.
	Count int32 `json:"count"`
}

// MachineReport explains why one machine is not a host.
type MachineReport struct {
	// node is the UUID of the node in Ironic.
	// +kubebuilder:validation:MaxLength=64
	Node string `json:"node"`
	// bootMAC of the machine, if it is known.
	// +kubebuilder:validation:MaxLength=17
	// +optional
	BootMAC string `json:"bootMAC,omitempty"`
	// name that the host would get, if it is known.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Name string `json:"name,omitempty"`
	// reason is one word out of a closed set.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says what is missing or in the way.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`
}

// PollReport describes the last reading of Ironic that changed something, or read everything.
type PollReport struct {
	// time when the reading ended.
	Time metav1.Time `json:"time"`
	// full says whether everything was read, not only news.
	Full bool `json:"full"`
	// requests is the number of requests that it took.
	Requests int32 `json:"requests"`
}

// BareMetalHostDiscoveryStatus says what discovery has found.
type BareMetalHostDiscoveryStatus struct {
	// observedGeneration is the generation of the spec that this status describes. -1 while no controller has looked at the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// endpoint is the Ironic that is asked, without credentials.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// apiVersion is the version of Ironic's API that is spoken.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// counts says how many machines are in which situation.
	// +optional
	Counts DiscoveryCounts `json:"counts,omitempty"`
	// reasons says how many machines wait or are refused for which reason.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=reason
	// +optional
	Reasons []ReasonCount `json:"reasons,omitempty"`
	// machines explains the first machines that are not hosts, at most 32.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=node
	// +optional
	Machines []MachineReport `json:"machines,omitempty"`
	// lastPoll describes the last reading of Ironic that changed something or read everything. Readings without news are
	// not written here; the metric discovery_operator_poll_last_success_timestamp_seconds has them.
	// +optional
	LastPoll *PollReport `json:"lastPoll,omitempty"`
	// conditions explain the state. Ready is the summary.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BareMetalHostDiscovery makes a BareMetalHost, in its own namespace, of each machine that Ironic knows and no user has
// registered.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name stands in a label of each host and may have at most 63 characters: choose a shorter one"
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="muster.io/crds=discovery-operator"
// +kubebuilder:resource:path=baremetalhostdiscoveries,shortName=bmhd,categories=muster
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status",description="Whether discovery works"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason",description="Why it does or does not"
// +kubebuilder:printcolumn:name="Hosts",type="integer",JSONPath=".status.counts.hosts",description="Hosts that this resource made"
// +kubebuilder:printcolumn:name="Waiting",type="integer",JSONPath=".status.counts.waiting",description="Machines that wait"
// +kubebuilder:printcolumn:name="Refused",type="integer",JSONPath=".status.counts.refused",description="Machines that are refused"
// +kubebuilder:printcolumn:name="Nodes",type="integer",JSONPath=".status.counts.nodes",description="Nodes that Ironic knows",priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",description="What Ready says",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the resource was made"
type BareMetalHostDiscovery struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which machines become hosts, and how.
	Spec BareMetalHostDiscoverySpec `json:"spec"`
	// status says what discovery has found.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status BareMetalHostDiscoveryStatus `json:"status,omitempty"`
}

// BareMetalHostDiscoveryList is a list of BareMetalHostDiscovery.
//
// +kubebuilder:object:root=true
type BareMetalHostDiscoveryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BareMetalHostDiscovery `json:"items"`
}
