// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import "github.com/muster-io/muster/discovery-operator/internal/inventory"

// Asked is what this process asked of Ironic for a host and waits for the answer to. It is forgotten with the process, and then asked again.
type Asked string

// Requests of a registration.
const (
	AskedNothing Asked = ""
	// AskedWrite says that the node has the driver and the credentials.
	AskedWrite Asked = "write"
	// AskedManage says that Ironic verifies the credentials.
	AskedManage Asked = "manage"
	// AskedPower says that Ironic asks the management controller for the power, which verifies the credentials of a node that is managed already.
	AskedPower Asked = "power"
	// AskedInspect says that Ironic has the machine inspected.
	AskedInspect Asked = "inspect"
)

// Move is the next step of a registration or an inspection.
type Move string

// Steps of a registration and of an inspection.
const (
	// Write the driver and the credentials to the node.
	Write Move = "write"
	// Manage makes Ironic verify the credentials of a new node.
	Manage Move = "manage"
	// CheckPower makes Ironic verify the credentials of a node that it manages already.
	CheckPower Move = "check power"
	// Inspect has the machine inspected.
	Inspect Move = "inspect"
	// Await the answer.
	Await Move = "await"
	// Accept says that the management controller has answered, or that the machine needs no further inspection.
	Accept Move = "accept"
	// Refuse says that it has not, or that it did not like the credentials, or that the inspection failed: see the node's last error.
	Refuse Move = "refuse"
)

// Registration says what is next for a node whose credentials are to be verified.
func Registration(n Node, asked Asked) Move {
	switch {
	case n.Busy():
		return Await
	case asked == AskedNothing:
		return Write
	case asked == AskedWrite && n.State == inventory.NodeEnroll:
		return Manage
	case asked == AskedWrite:
		return CheckPower
	case asked == AskedManage && n.State == inventory.NodeEnroll, asked == AskedPower && n.LastError != "":
		return Refuse
	default:
		return Accept
	}
}
