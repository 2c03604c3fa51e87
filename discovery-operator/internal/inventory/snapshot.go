// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Snapshot is everything that a decision about one resource rests on.
type Snapshot struct {
	Now time.Time
	// Self is the resource to decide for; it is one of Resources.
	Self Ref
	// Resources are all that ask the same Ironic.
	Resources []Resource
	// Machines are what that Ironic knows, in the order in which it made them.
	Machines []*Machine
	// Partial says that Ironic knows more machines, which are still being listed.
	Partial bool
	// Looked is when Machines were taken from the mirror, on the clock on which machines are Seen.
	Looked time.Time
	// Left is when the hosts of nodes were deleted, on that clock, for as long as it matters. A host that goes takes its node along.
	Left map[string]time.Time
	// Waited is when machines that could have been hosts last waited for something, on that clock: what WaitedAfter returned of the decision before.
	Waited map[string]time.Time
	// Hosts are all BareMetalHosts of the cluster.
	Hosts []Host
	// Reservations are held boot MACs.
	Reservations map[string]Reservation
	// Judged are the judgements of machines that the resource's rule has not approved.
	Judged map[string]bool
	// Tokens is how many hosts may be created now; NextToken is how long until one more may.
	Tokens    int
	NextToken time.Duration
	// Frozen says that Ironic does not answer: nothing is created on old knowledge.
	Frozen bool
}

// Ref names an object.
type Ref struct{ Namespace, Name string }

// String is namespace/name.
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Machine is a node with its ports and, once a resource asked for it, its report. It is not changed after it was made.
type Machine struct {
	Node  Node
	Ports []Port
	// Report is nil until it was wanted and found.
	Report *Report
	// BootMAC is that of the last report, where the report was dropped; empty when the node may have another one since.
	BootMAC string
	// Unreadable is why what Ironic has instead of a report cannot be read, empty if it can.
	Unreadable string
	// Missing and MissingLast are when Ironic first and last answered that it has no report; zero while it has not answered so.
	Missing, MissingLast time.Time
	// FirstSeen is when the node was first listed.
	FirstSeen time.Time
	// PortsRead is when Ironic last answered with all ports of the node.
	PortsRead time.Time
	// Seen is when Ironic was asked last of the questions that it answered with the node itself, in a list of all nodes or alone, or with its report.
	Seen time.Time
	// NodeSeen is Seen without reports: an inspection service of its own keeps those of nodes that are gone.
	NodeSeen time.Time
}

// Read reports whether Ironic has answered what its report of the machine is, if only that there is none.
func (m *Machine) Read() bool { return m.Report != nil || m.Unreadable != "" || !m.Missing.IsZero() }

// WithoutReport is the machine without its report, of which it keeps the boot MAC.
func (m *Machine) WithoutReport() *Machine {
	next := *m
	if m.Report != nil {
		next.BootMAC, _ = bootMAC(m)
	}
	next.Report, next.Unreadable, next.Missing, next.MissingLast = nil, "", time.Time{}, time.Time{}
	return &next
}

// Judgement is what a rule judges: the machine as it was at its last inspection.
func (m *Machine) Judgement() string { return m.Node.UUID + " " + m.Node.Inspected }

// Resource is a BareMetalHostDiscovery.
type Resource struct {
	Ref
	Created time.Time
	UID     string
	Paused  bool
	// Going says that the resource is being deleted; it takes nothing any more.
	Going    bool
	Template metal3v1.ResourceNameTemplate
	// Selects is nil when the resource takes every machine.
	Selects *Expression
	// Labels and Annotations for hosts.
	Labels, Annotations map[string]*Text
	// Broken says why no host can be made with this resource, empty if one can.
	Broken string
	Manual bool
	// Approves is nil when no machine is approved by rule.
	Approves *Expression
	// Named is nil when a detail names hosts, BMC when hosts get no management controller.
	Named *Text
	BMC   *BMCRule
	// Dry says that no host is made.
	Dry      bool
	MaxHosts *int32
	// IgnoreSerial and IgnoreBMC say that these tell no machines apart.
	IgnoreSerial, IgnoreBMC bool
	// Shared says that the administrator lets the resource's namespace share Ironics with others.
	Shared bool
}

// BMCRule gives hosts their management controllers.
type BMCRule struct {
	Address *Text
	// Secret is for machines for which no entry of Secrets is.
	Secret  string
	Secrets []SecretRule
}

// SecretRule is the Secret for some machines.
type SecretRule struct {
	Selects   *Expression
	MACPrefix string
	Secret    string
}

// Host is what matters of a BareMetalHost.
type Host struct {
	Ref
	UID     string
	Created time.Time
	// NodeID is status.provisioning.ID, or what discovery recorded of it.
	NodeID string
	// BootMAC and MACs are in lower case.
	BootMAC string
	MACs    []string
	// Serial and BMC are normal: see NormalSerial and NormalBMC.
	Serial, BMC string
	// BMCKey is that of the address of the management controller, empty where the host names none.
	BMCKey string
	// Resource is the BareMetalHostDiscovery that made the host, empty for others.
	Resource string
	// Held says that discovery still holds the host, Unapproved that a user has to approve it first.
	Held, Unapproved bool
	HasStatus        bool
	Going            bool
	// Driver is the driver that the host's management controller needs where another operator manages the host and does not switch it, else empty.
	Driver string
	// LastSeen is when the machine last reported, as RFC 3339 in UTC, or "unknown"; empty for hosts that discovery does not keep up to date, because
	// another operator manages them.
	LastSeen string
	// Lost says that the host says already that Ironic does not know its node.
	Lost bool
	// Since is when the host was registered by hand, or handed over. Earlier answers of Ironic about its node prove nothing about the driver.
	Since time.Time
}

// Reservation is a boot MAC that is held for a host, or kept away.
type Reservation struct {
	Host    Ref
	Ignored bool
}

// Decision is what is to be done, and how things are.
type Decision struct {
	Actions []Action
	Counts  metal3v1.DiscoveryCounts
	// Verdicts are about the machines that are not hosts and concern this resource, in the order of the machines.
	Verdicts []Verdict
	// LostHosts is the number of this resource's hosts whose node Ironic does not list.
	LostHosts int
	// Unruled are the judgements in which the resource's rule has not approved the host of a machine.
	Unruled []string
	// Unevaluated is how many machines the resource's selector failed on, and the first of them with the error.
	Unevaluated     int
	UnevaluatedNode string
	UnevaluatedWhy  string
	// RequeueAfter is when time alone changes the decision; 0 means never.
	RequeueAfter time.Duration
}

// Verdict explains why a machine is not a host.
type Verdict struct {
	Node, BootMAC, Name string
	// Waiting says that the machine will become a host by itself or by lifting what is named; otherwise it is refused.
	Waiting bool
	Reason  string
	Message string
}

// Action is something to do. The set is closed.
type Action interface{ isAction() }

// FetchReport asks for the report of a node.
type FetchReport struct{ Node string }

// CreateHost makes a host of a machine: the reservation of its boot MAC, the host, and its status.
type CreateHost struct {
	Host    Ref
	Node    string
	BootMAC string
	// BootRule says which rule chose the boot MAC.
	BootRule BootRule
	// Detail gave the host its name; FellBack says that it was not the first choice.
	Detail              metal3v1.HardwareDetail
	FellBack            bool
	Labels, Annotations map[string]string
	Manual              bool
	// Ruled says that a rule approved the machine.
	Ruled bool
	// BMCAddress and BMCSecret are empty when the host gets no management controller.
	BMCAddress, BMCSecret string
	// ShareBMC says that several hosts may have the management controller.
	ShareBMC bool
	Report   *Report
	Machine  *Machine
}

// WriteStatus gives a host that discovery made its status: it has none yet, or its machine has a new node.
type WriteStatus struct {
	Host Ref
	UID  string
	// BootMAC is the host's, and a port of the node has it.
	BootMAC string
	Node    string
	Report  *Report
	// Replaced is the node that is gone, empty when there was none.
	Replaced string
	// Again says that the machine was inspected again.
	Again bool
	// Inspected is Node.Inspected.
	Inspected string
	// Manual says that the host waits for approval.
	Manual bool
}

// ApproveHost approves a host by the resource's rule.
type ApproveHost struct {
	Host Ref
	UID  string
	Node string
}

// DropReport says that the report of a node is not needed any more.
type DropReport struct{ Node string }

// ConfirmNode asks whether Ironic still has a node that was not seen for some time.
type ConfirmNode struct{ Node string }

// TellLost says on a host whether Ironic knows its node.
type TellLost struct {
	Host Ref
	UID  string
	Node string
	Lost bool
}

func (TellLost) isAction()    {}
func (ApproveHost) isAction() {}
func (ConfirmNode) isAction() {}
func (FetchReport) isAction() {}
func (CreateHost) isAction()  {}
func (WriteStatus) isAction() {}
func (DropReport) isAction()  {}

// Admitted are those of the resources, which all ask one Ironic, that may take its machines, in the order in which they choose: those of
// namespaces that the administrator lets share, and where there are none, those of the namespace of the first one.
func Admitted(resources []Resource) []Resource {
	ordered := slices.DeleteFunc(order(resources), func(r Resource) bool { return r.Going })
	shared := slices.ContainsFunc(ordered, func(r Resource) bool { return r.Shared })
	var admitted []Resource
	for i := range ordered {
		if shared && ordered[i].Shared || !shared && ordered[i].Namespace == ordered[0].Namespace {
			admitted = append(admitted, ordered[i])
		}
	}
	return admitted
}

// order is the order in which resources choose: the oldest first, then by name, then by UID.
func order(resources []Resource) []Resource {
	resources = slices.Clone(resources)
	slices.SortFunc(resources, func(a, b Resource) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.String(), b.String()), strings.Compare(a.UID, b.UID))
	})
	return resources
}
