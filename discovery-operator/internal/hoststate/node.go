// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"cmp"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Node is what matters of a node while its host is managed.
type Node struct {
	UUID string
	// Name is "<namespace>~<name>" of the host that the node belongs to, empty for a discovered node.
	Name   string
	Driver string
	// Info is the node's driver_info without what is secret.
	Info map[string]string
	// State is the provision state, Target the one that Ironic is leading the node to, empty if none.
	State, Target string
	// Power is "power on", "power off", or empty while it is unknown; PowerTarget is the one that Ironic is leading the node to.
	Power, PowerTarget string
	// LastError is what Ironic last reported, empty if nothing.
	LastError string
	// Instance is the UUID of what occupies the node, empty if nothing.
	Instance string
	// Locked says that Ironic works on the node.
	Locked bool
	// Boot is the node's boot interface.
	Boot string
	// Inspector is the node's inspect interface. Inspected is when its last inspection ended well, by Ironic's clock; zero while one is under
	// way, after one that failed, and for a machine that was discovered and never inspected.
	Inspector string
	Inspected time.Time
	// Reported is when ironic-inspector last ended an inspection of the machine, by its clock; zero where it did not, or is not there.
	Reported time.Time
	// Deployment is the node's instance_info: what it is to deploy, and what Ironic adds.
	Deployment map[string]any
	// Deploy and PowerBy are the node's deploy and power interface.
	Deploy, PowerBy string
	// Step is the step of a deployment or of a cleaning that is under way, empty before the first.
	Step string
	// TokenTaken says that an agent in the ramdisk has taken the token of the node, which Ironic gives once, and has sent no heartbeat with it yet.
	TokenTaken bool
	// Clean says whether the disks are cleaned between two uses, nil where Ironic's configuration decides.
	Clean *bool
	// KeepOn says whether Ironic never switches the machine off, nil where Ironic cannot be told so.
	KeepOn *bool
	// Properties and Network are what the node says of its machine, and of the network of ramdisks.
	Properties, Network map[string]any
	// Maintenance keeps Ironic from working with the node.
	Maintenance bool
	// Fault is why Ironic itself began the maintenance, empty where another client did.
	Fault string
	// Leaving says that the maintenance is this operator's: it was about to remove the node of a detached host, or to change how one in use boots.
	Leaving bool
	// Untimed says that Ironic's periodic checks leave the node out: no time-out of Ironic ends what the node waits for.
	Untimed bool
	// Touched is when Ironic last changed the provision state or heard the ramdisk, by its clock and as it writes it. From then on it counts its time-outs.
	Touched string
}

// Provision states of an inspection: Ironic prepares it, waits for the ramdisk, or has given up.
const (
	Inspects      = "inspecting"
	InspectWait   = "inspect wait"
	InspectFailed = "inspect failed"
)

// powerFault is the fault with which Ironic stops watching the power of a machine whose management controller does not answer. It ends that maintenance itself.
const powerFault = "power failure"

// States of power, and what can be asked of it.
const (
	PowerOn     = "power on"
	PowerDown   = "power off"
	SoftDown    = "soft power off"
	Rebooting   = "rebooting"
	SoftRestart = "soft rebooting"
)

// BMC is the key of the management controller in the node's driver_info, empty where there is none.
func (n Node) BMC() string {
	address, info := "", n.Info
	switch {
	case info["redfish_address"] != "" && n.Driver != "ipmi":
		address = info["redfish_address"] + info["redfish_system_id"]
	case info["ipmi_address"] != "" && n.Driver == "ipmi":
		address = "ipmi://" + net.JoinHostPort(info["ipmi_address"], cmp.Or(info["ipmi_port"], "623"))
	}
	return inventory.BMCKey(address)
}

// Busy reports whether Ironic is doing something with the node, so that an answer is to be waited for.
func (n Node) Busy() bool {
	return n.Locked || n.PowerTarget != "" || n.State == inventory.NodeVerifying || n.State == Inspects || n.State == InspectWait ||
		n.State == Undeploying || n.State == Cleaning || n.State == CleanWait || n.State == Deploying || n.State == DeployWait || n.State == Adopting
}

// InterfacesChange reports whether Ironic changes interfaces of the node in its state.
func (n Node) InterfacesChange() bool {
	return n.State == inventory.NodeEnroll || n.State == inventory.NodeManageable || n.State == inventory.NodeAvailable
}

// AwaitsRamdisk reports whether Ironic waits for what a ramdisk reports while it deploys or cleans.
func (n Node) AwaitsRamdisk() bool { return n.State == DeployWait || n.State == CleanWait }

// AwaitsAgent reports whether Ironic waits for the first heartbeat of an agent that has taken its token.
func (n Node) AwaitsAgent() bool {
	return n.AwaitsRamdisk() && !n.Locked && n.TokenTaken
}

// Deployed reports whether something is, or is being, deployed on the node, so that it has to be undeployed before it can go.
func (n Node) Deployed() bool {
	switch n.State {
	case Active, Deploying, DeployWait, DeployFailed, "deploy hold", NodeError,
		"rescuing", "rescue wait", "rescue", "rescue failed", "unrescuing", "unrescue failed",
		"servicing", "service wait", "service hold", "service failed":
		return true
	default:
		return false
	}
}

// guarded reports whether Ironic may delete an idle node in maintenance only. One that is available it keeps where [conductor] allow_deleting_available_nodes says so.
func (n Node) guarded() bool { return n.State == inventory.NodeAvailable || n.State == CleanFailed }

// statusOfRefusal is an HTTP status, not a part of a longer number such as a port.
var statusOfRefusal = regexp.MustCompile(`\b40[13]\b`)

// Refusal says whether Ironic's error is a management controller's refusal of the credentials. Controllers lock accounts after a few
// of these, so it is worth telling them from a controller that does not answer.
func Refusal(lastError string) bool {
	text := strings.ToLower(lastError)
	if statusOfRefusal.MatchString(text) {
		return true
	}
	for _, sign := range []string{
		"unauthorized", "accesserror", "access error", "authentication", "invalid credential", "password",
		"incorrect user", "rakp 2", "unauthorized name",
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
