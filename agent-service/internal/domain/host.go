// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// AutoAssign is the role of a host that an installation gives one.
const AutoAssign = "auto-assign"

// Stamps are what the tokens of a host carry beside the HostGeneration of its InfraEnv. They are random, so that those of a host that was deleted, or lost with its data,
// never come back.
type Stamps struct {
	// Registration changes with each registration. Tokens of agents carry it, those of installed systems do not.
	Registration string `json:",omitempty"`
	// Binding changes when a binding ends, and when the machine boots the discovery image to begin anew. Tokens of agents and of installed systems carry it.
	Binding string `json:",omitempty"`
}

// HostKey names a host: the same machine in another InfraEnv is another host.
type HostKey struct {
	InfraEnvID string
	HostID     string
}

// Said is what an agent of assisted-service found out about a cluster. It does not say within an hour what it said last, also where the host comes back to the cluster.
type Said struct {
	ClusterID string
	Domains   map[string]bool `json:",omitempty"`
	API       validate.Check  `json:",omitempty"`
	APIDetail string          `json:",omitempty"`
}

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
	Attempts int `json:",omitempty"`
	Progress Progress
	// InstalledAt is when the last installation ended that Progress tells no more of, zero for none.
	InstalledAt     time.Time `json:",omitzero"`
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
	// Said is what the agent found out about the cluster that the host was in last.
	Said Said `json:",omitzero"`
	// Stamps are those of tokens that count.
	Stamps Stamps
	// Fingerprint and BootID are of the last registration.
	Fingerprint string
	BootID      string
	// Twin is what tells two machines apart that report as this host and send no fingerprint, TwinAt when the other one reported last; empty where one does.
	Twin   string    `json:",omitempty"`
	TwinAt time.Time `json:",omitzero"`
	// Admission is of the image's token that the agent registered with, where it can take no token of its own; zero for others.
	Admission Generations
	// LogsState is requested, collecting, completed or timeout, empty before; LogsAt is since when.
	LogsState string
	LogsAt    time.Time
	// Written are the disks that this service had written since the host was wiped last, and InstallationDisk is the path of the one that is being written in this boot.
	Written          []hardware.DiskIdentity `json:",omitempty"`
	InstallationDisk string                  `json:",omitempty"`
	// Resident is true where the agent of the installed system asks for instructions.
	Resident bool `json:",omitempty"`
	// Node is what the host is in its cluster.
	Node Node `json:",omitzero"`
	// Reservation is the last one, zero for a host that was bound since.
	Reservation Reservation `json:",omitzero"`
	// Release is the last one, zero for a host that has not been bound since it is known, and for one that is bound.
	Release Release `json:",omitzero"`
	// ReleaseMovedAt is when the same machine took the last release over as a host of another InfraEnv, zero for never.
	ReleaseMovedAt time.Time `json:",omitzero"`
	// Addressing is of the last installation, zero where the InfraEnv names no pools.
	Addressing Addressing `json:",omitzero"`
	// Stated is the spec of an Agent that changed the host last, zero for none.
	Stated SpecVersion `json:",omitzero"`
	HostSettings
	// Revision grows with each change of the row. It is what SpecSynced, lists and watches compare.
	Revision int64
}

// SpecVersion is the spec of a custom resource at a time.
type SpecVersion struct {
	// UID is of the object, Generation its metadata.generation.
	UID        string
	Generation int64
}

// Before is true for a spec that the object of another one had earlier.
func (v SpecVersion) Before(other SpecVersion) bool {
	return v.UID == other.UID && v.Generation < other.Generation
}

// HostSettings are what a user states of a host.
type HostSettings struct {
	// Approved is needed for installation, not for binding.
	Approved bool
	// Role is auto-assign (default), master, worker or arbiter.
	Role                    string
	RequestedHostname       string
	NodeLabels              map[string]string
	NodeTaints              []Taint `json:",omitempty"`
	MachineConfigPool       string
	InstallationDiskID      string
	InstallationDiskPath    string
	SkipFormattingDisks     []string
	InstallerArgs           string
	IgnitionConfigOverrides string
	// IgnitionEndpointToken is a secret: replies show only that it is set.
	IgnitionEndpointToken       string
	IgnitionEndpointHTTPHeaders map[string]string
	// Wipe is what the MachinePool that bound the host has erased when it is released, empty without one. The host's InfraEnv can ask for more. It does not become less
	// while the host is bound.
	Wipe Wipe `json:",omitempty"`
}

// Taint is one of a Node, as the API of Kubernetes has it.
type Taint struct {
	Key    string
	Value  string `json:",omitempty"`
	Effect string
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

// Rebooted is true from the restart into the installed system, also where the installation failed after that.
func (p Progress) Rebooted() bool {
	return lifecycle.AfterReboot(p.Stage) || p.Percentage >= lifecycle.Percentage(lifecycle.StageRebooting)
}

// OwesLogs is true for the cluster that the host is bound to, and for the one that it left until it boots again, or has stopped the installation: what is sent until then is of that installation. Logs belong
// to the cluster, and stay with it when the host is freed or deleted.
func (h *Host) OwesLogs(clusterID string) bool {
	return h.ClusterID == clusterID || h.ClusterID == "" && h.PreviousCluster == clusterID && (h.State == lifecycle.UnbindingPendingUserAction || h.Release.Stopping)
}

// ForgetProgress drops the progress, and remembers an installation that ended.
func (h *Host) ForgetProgress() {
	if h.Progress.Stage == lifecycle.StageDone {
		h.InstalledAt = h.Progress.StageUpdatedAt
	}
	h.Progress = Progress{}
}

// Missed is true for an installation that ended at a time, in whole seconds, and that is later than all that the host knows of: it is of before that, as in a database that was
// restored from a backup.
func (h *Host) Missed(installedAt time.Time) bool {
	known := h.InstalledAt
	if h.Progress.Stage == lifecycle.StageDone {
		known = h.Progress.StageUpdatedAt
	}
	return installedAt.After(known.Add(time.Second))
}

// WhyUnprepared says which check before the installation failed.
func (h *Host) WhyUnprepared() string {
	if h.Images != validate.Refused {
		return "the installation disk is too slow"
	}
	return "the image cannot be downloaded: " + cmp.Or(h.ImagesDetail, "the agent does not say why")
}

var errInstallerArgs = Refuse(Invalid, "InstallerArgsInvalid", "installer_args is not a JSON list of strings")

// Check is what is wrong with the settings, nil for nothing.
func (h HostSettings) Check() error {
	switch {
	case !slices.Contains([]string{AutoAssign, "master", "worker", "arbiter"}, h.Role):
		return Refuse(Invalid, "RoleInvalid", "role %q: write auto-assign, master, worker or arbiter", Truncate(h.Role, 32))
	case h.InstallationDiskID != "" && h.InstallationDiskPath != "":
		return Refuse(Invalid, "DiskInvalid", "Either InstallationDiskID or InstallationDiskPath can be set, not both.")
	case utf8.RuneCountInString(h.RequestedHostname) > 253:
		return Refuse(Invalid, "HostnameInvalid", "a host name has at most 253 characters")
	case h.InstallerArgs != "" && json.Unmarshal([]byte(h.InstallerArgs), &[]string{}) != nil:
		return errInstallerArgs
	case h.MachineConfigPool != "" && h.Role != "worker" && h.Role != AutoAssign:
		return Refuse(Invalid, "MachineConfigPoolInvalid", "machine_config_pool_name needs role worker")
	case h.Wipe != "" && !slices.Contains(Wipes, h.Wipe):
		return Refuse(Invalid, "WipeInvalid", "wipe %q: write None, InstalledDisk or AllDisks", Truncate(string(h.Wipe), 64))
	}
	for _, err := range []error{
		oneLine(map[string]string{"host_name": h.RequestedHostname, "machine_config_pool_name": h.MachineConfigPool}),
		checkIgnition("ignition_config_overrides", h.IgnitionConfigOverrides), checkLabels(h.NodeLabels), checkTaints(h.NodeTaints),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// Same is true for settings that are stored alike.
func (h HostSettings) Same(other HostSettings) bool {
	left, err := json.Marshal(h)
	right, err2 := json.Marshal(other)
	return err == nil && err2 == nil && string(left) == string(right)
}

// KeepWipe returns settings that are stated of the host with what is wiped of it at least: while it is bound, that does not become less.
func (h *Host) KeepWipe(stated HostSettings) HostSettings {
	if h.ClusterID != "" && h.Wipe != "" {
		stated.Wipe = Strictest(h.Wipe, stated.Wipe)
	}
	return stated
}

// CheckInstallerArgs refuses arguments that the agent of this host would refuse once the installation has begun. Agents of assisted-service hand them to a program of their own.
func (h *Host) CheckInstallerArgs(installerArgs string) error {
	var args []string
	if h.Assisted() || installerArgs == "" {
		return nil
	}
	if json.Unmarshal([]byte(installerArgs), &args) != nil {
		return errInstallerArgs
	}
	if _, err := agentproto.ReadInstallerArgs(args); err != nil {
		return Refuse(Invalid, "InstallerArgsInvalid", "%s", Truncate(err.Error(), 500))
	}
	return nil
}

// KeepsPartitions is true where an agent of assisted-service is told to keep partitions of the installation disk. It measures the speed of a disk by writing over its beginning.
func (h *Host) KeepsPartitions() bool {
	return h.Assisted() && (strings.Contains(h.InstallerArgs, "--save-partlabel") || strings.Contains(h.InstallerArgs, "--save-partindex"))
}

// Accept is true for what a token carries that has not ended.
func (s Stamps) Accept(carried Stamps) bool {
	return carried.Binding == s.Binding && (carried.Registration == "" || carried.Registration == s.Registration)
}

// String is "infraEnv/host", for logs.
func (k HostKey) String() string { return k.InfraEnvID + "/" + k.HostID }

// AgentNames are the names that the Agent of the host may have: the id of the host, and where another InfraEnv of the namespace has an Agent of that name, the id with
// the first eight characters of the InfraEnv's id behind it. Both ids are UUIDs.
func (k HostKey) AgentNames() (name, beside string) {
	return k.HostID, k.HostID + "-" + k.InfraEnvID[:8]
}

// Assisted is true where the agent is that of assisted-service: it knows no tokens of its own and no images of disks.
func (h *Host) Assisted() bool { return h.BootID == "" && h.AgentVersion != "" }

// Hostname is the name that the host gets: the requested one, else the one that it reports.
func (h *Host) Hostname() string {
	if h.RequestedHostname != "" {
		return h.RequestedHostname
	}
	return h.Summary.Hostname
}

// Label is how events call the host.
func (h *Host) Label() string { return cmp.Or(h.Hostname(), h.HostID) }

// FreeLabel is how events call a host that the administrator of its InfraEnv sees too: not as it is called in a cluster.
func (h *Host) FreeLabel() string {
	if h.ClusterID == "" {
		return h.Label()
	}
	return cmp.Or(h.FreeHostname, h.Summary.Hostname, h.HostID)
}

// ForgetPreparation makes the checks before an installation run again. Agents of assisted-service do not repeat within an hour what they said, so what passed stays.
func (h *Host) ForgetPreparation() {
	if !h.Assisted() || h.Images != validate.Passed {
		h.Images, h.ImagesDetail = validate.Unknown, ""
	}
	if !h.Assisted() || h.Checks.DiskSpeed != validate.Passed {
		h.Checks.DiskSpeed = validate.Unknown
	}
}

// Leave ends a binding at a time: what the tenant said of the host goes, what the machine reported stays.
func (h *Host) Leave(now time.Time) {
	if h.Assisted() && (h.Checks.Domains != nil || h.Checks.API != validate.Unknown) {
		h.Said = Said{ClusterID: h.ClusterID, Domains: h.Checks.Domains, API: h.Checks.API, APIDetail: h.Checks.APIDetail}
	}
	h.Release = Release{ClusterID: h.ClusterID, NodeName: h.Node.Name, Binding: h.Stamps.Binding, Rejoin: h.Node.Rejoin.Stamp, Unjoined: !h.Joined(), StartedAt: now, Wipe: h.Wipe, Stopping: h.State == lifecycle.Cancelled}
	h.Node = Node{}
	h.PreviousCluster, h.ClusterID, h.DayTwo = h.ClusterID, "", false
	h.HostSettings = HostSettings{Approved: h.Approved, Role: AutoAssign, RequestedHostname: h.FreeHostname}
	h.FreeHostname, h.Validations = "", nil // their sentences name the cluster and what the host was called there
	h.Checks = validate.Checks{Registry: h.Checks.Registry, RegistryDetail: h.Checks.RegistryDetail, DiskSpeed: h.Checks.DiskSpeed}
}

// Join begins a binding: of what the agent found out about clusters, only what is of this one counts.
func (h *Host) Join(clusterID string, dayTwo bool) {
	h.ClusterID, h.DayTwo, h.FreeHostname, h.Release, h.Addressing = clusterID, dayTwo, h.RequestedHostname, Release{}, Addressing{}
	h.Wipe = "" // of the MachinePool that bound it before
	said := Said{}
	if h.Assisted() && h.Said.ClusterID == clusterID {
		said = h.Said
	}
	h.Checks.Domains, h.Checks.API, h.Checks.APIDetail = said.Domains, said.API, said.APIDetail
}
