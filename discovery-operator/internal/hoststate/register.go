// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

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

// registers reports whether nothing was asked of Ironic, or what a registration asks.
func (a Asked) registers() bool {
	return a == AskedNothing || a == AskedWrite || a == AskedManage || a == AskedPower
}

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

// moves bounds the changes of a registration in one pass.
const moves = 4

// registration is the part of a pass that gives a node the driver and the credentials of its host.
type registration struct{ *pass }

// register gives the node of a host the driver and the credentials, and has the management controller verify them. A node that exists is updated; only
// where there is none, one is made.
func (p registration) register() Decision {
	bmc, secret := p.Host.Spec.BMC, p.Secret
	switch {
	case !secret.Found:
		return p.unregistered(metal3v1.ReasonCredentialsNotFound, fmt.Sprintf("There is no Secret %s in this namespace.", bmc.CredentialsName))
	case secret.Username == "" || secret.Password == "":
		return p.unregistered(metal3v1.ReasonCredentialsNotFound, fmt.Sprintf("The Secret %s lacks username or password.", bmc.CredentialsName))
	}
	access, err := p.access(secret.Password)
	switch {
	case err != nil:
		return p.unregistered(metal3v1.ReasonBMCUnsupported, err.Error()+".")
	case p.NodeID == "" && p.Seen.Found != nil && *p.Seen.Found != "":
		p.NodeID = *p.Seen.Found
	case p.NodeID == "":
		return p.enrol(access)
	}
	switch {
	case p.Seen.PortDue:
		p.Seen.PortDue = false
		return p.do(Action{Call: EnsurePort, Node: p.NodeID})
	case p.Seen.Node == nil && p.Seen.Moves == moves:
		return p.end(verifying(Node{}))
	case p.Seen.Node == nil:
		return p.do(Action{Call: ReadNode, Node: p.NodeID})
	default:
		return p.verify(*p.Seen.Node, access)
	}
}

func (p registration) unregistered(reason, message string) Decision {
	return p.failed(metal3v1.RegistrationError, reason, message)
}

// enrol finds the node of a host, or makes it, unless another host has reserved the boot MAC: Ironic would take the machine of that one for this one's. A
// process that dies after that finds the node by its name.
func (p registration) enrol(a Access) Decision {
	switch {
	case p.Seen.Found == nil:
		return p.do(Action{Call: Find})
	case p.Seen.Taken == nil:
		return p.do(Action{Call: CheckTaken})
	case *p.Seen.Taken != "":
		return p.unregistered(metal3v1.ReasonMachineUsedByOther, Sentence(*p.Seen.Taken))
	default:
		return p.do(Action{Call: EnrolNode, Access: a})
	}
}

// verify takes the next step of the registration of a node.
func (p registration) verify(n Node, a Access) Decision {
	switch Registration(n, p.Memory.Asked) {
	case Write:
		switch {
		case p.Seen.Claimed == nil:
			return p.do(Action{Call: Claim, Node: n.UUID, Known: n})
		case *p.Seen.Claimed != "":
			p.NodeID = p.Host.Status.Provisioning.ID
			return p.unregistered(metal3v1.ReasonMachineUsedByOther, Sentence(*p.Seen.Claimed))
		}
		p.Seen.Claimed, p.Seen.PortDue = nil, p.Host.Spec.BootMACAddress != ""
		return p.move(AskedWrite, Action{Call: WriteNode, Node: n.UUID, Known: n, Access: a})
	case Manage:
		return p.move(AskedManage, Action{Call: SetProvision, Node: p.NodeID, Target: AskManage})
	case CheckPower:
		return p.move(AskedPower, Action{Call: SetPower, Node: p.NodeID, Target: presentPower(n, p.Host)})
	case Accept:
		return p.accepted(n)
	case Refuse:
		reason := metal3v1.ReasonBMCUnreachable
		if Refusal(n.LastError) {
			reason = metal3v1.ReasonBMCCredentialsRefused
		}
		return p.unregistered(reason, strings.ReplaceAll(n.LastError, p.Secret.Password, "******"))
	default:
		return p.end(verifying(n))
	}
}

// move changes the node, which is read again afterwards.
func (p registration) move(asked Asked, a Action) Decision {
	p.Memory.Asked, p.Seen.Node = asked, nil
	p.Seen.Moves++
	return p.do(a)
}

// verifying waits for Ironic to ask the management controller.
func verifying(n Node) Outcome {
	if n.State == InspectWait {
		return waiting(metal3v1.ReasonInspecting, "The machine is being inspected; the credentials are verified afterwards.", longRetry)
	}
	return waiting(metal3v1.ReasonVerifyingAccess, "Ironic asks the management controller.", answerRetry)
}

// presentPower is what the power is already, so that asking for it switches nothing.
func presentPower(n Node, h *metal3v1.BareMetalHost) string {
	switch {
	case n.Power != "":
		return n.Power
	case h.Spec.Online:
		return PowerOn
	default:
		return PowerDown
	}
}

// accepted records that the management controller has accepted the credentials.
func (p registration) accepted(n Node) Decision {
	on := n.Power == PowerOn
	p.Powered, p.Memory.Asked = &on, AskedNothing
	p.Good = metal3v1.CredentialsStatus{
		Reference: &corev1.SecretReference{Namespace: p.Host.Namespace, Name: p.Host.Spec.BMC.CredentialsName}, Version: p.Secret.Version,
	}
	settled := p.Host.Status.ErrorType != metal3v1.ProvisioningError // what failed with the image is tried again now
	return p.end(Outcome{Event: AfterVerification(p.Facts), Settled: settled, After: soon}, normal("BMCAccessValidated", "Register",
		fmt.Sprintf("The management controller has accepted the credentials; node %s has driver %s", p.NodeID, n.Driver)))
}

// findNode looks for the machine of a host that has no credentials; there may be none, for ever.
func (p *pass) findNode() Decision {
	if p.Seen.Found == nil {
		return p.do(Action{Call: Find})
	}
	uuid := *p.Seen.Found
	if uuid == "" {
		return p.wait(metal3v1.ReasonWaitingForMachine, "No machine with this boot MAC has reported yet. Switch it on, or set spec.bmc.", machineRetry)
	}
	whose, looked := p.Seen.Held[uuid]
	switch {
	case !looked:
		return p.do(Action{Call: Hold, Node: uuid})
	case whose != "":
		return p.notIts(whose)
	}
	p.NodeID = uuid
	return p.end(Outcome{Event: NodeFound, Settled: true, After: soon})
}
