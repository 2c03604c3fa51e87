// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Snapshot is what one pass over a host has seen. It begins with the host and its Secret, and each action of a plan completes it.
type Snapshot struct {
	Host  *metal3v1.BareMetalHost
	State State
	Facts Facts
	// Secret has the credentials of the management controller.
	Secret Secret
	Memory Memory
	// NodeID is the UUID of the host's node: the recorded one, or the one that was found or made in this pass; empty if there is none.
	NodeID string
	// Good are the credentials that the management controller has accepted.
	Good metal3v1.CredentialsStatus
	// Powered is what the management controller says, nil while it was not asked in this pass.
	Powered *bool
	// KeepAway says that the machine shall not become a host again.
	KeepAway bool
	Seen     Seen
}

// Secret is a Secret with credentials, as far as it was found.
type Secret struct {
	Found                       bool
	Version, Username, Password string
}

// Memory is what this process remembers of a host between passes. Losing it costs nothing but repetition.
type Memory struct {
	// Asked is what was asked of Ironic last, Power which power.
	Asked Asked
	Power string
	// Reported is what Reported of the node was when an inspection was asked for.
	Reported time.Time
	// Token is since when an agent that has taken the node's token sent no heartbeat, zero where none is waited for.
	Token time.Time
	// Ramdisk is since when the ramdisk of a node that is Untimed is waited for, zero where none is. Touched is what Touched of the node was then.
	Ramdisk time.Time
	Touched string
	// Looks counts looks at what takes long, Failures what failed, and NotBefore is when that is tried again.
	Looks, Failures int
	NotBefore       time.Time
}

// Seen is what the actions of one pass have led to.
type Seen struct {
	// Connected says that the host's Ironic serves this pass.
	Connected bool
	// Node is nil while it was not read, and after it was changed.
	Node *Node
	// Lost says that Ironic does not know the recorded node.
	Lost bool
	// Found is the UUID of the node that has the host's name or boot MAC, empty where there is none.
	Found *string
	// Held says, by node, why the host may not act on it; empty where it may.
	Held map[string]string
	// Claimed says whose the node is, Taken whose the boot MAC is; empty where they are the host's, nil while that was not looked at.
	Claimed, Taken *string
	// Reported says that the hardware was asked for, and Report is nil where Ironic has none.
	Reported bool
	Report   *inventory.Report
	// HardwareSet says that the host has the reported hardware.
	HardwareSet bool
	// PortDue says that the node may lack a port with the boot MAC.
	PortDue bool
	// Rebooted says that the power was switched as a reboot wants it.
	Rebooted bool
	Config   *osimage.ConfigDrive
	// Unchanged says that the API server has the host as it was read.
	Unchanged bool
	// Moves counts the changes of a registration.
	Moves int
	// Err is why the action At failed.
	Err error
	At  Call
}

// Call names one call of Ironic or the API server.
type Call string

// Calls. Each can be repeated.
const (
	// Connect admits the host to its Ironic.
	Connect Call = "connect"
	// Hold asks whether the host may act on a node, Claim looks at everything that this rests on, and CheckTaken at the boot MAC alone.
	Hold       Call = "hold"
	Claim      Call = "claim"
	CheckTaken Call = "check the boot MAC"
	// Find looks for the host's node, ReadNode and ExamineNode read it, the latter with what is known of its inspections.
	Find        Call = "find"
	ReadNode    Call = "read node"
	ExamineNode Call = "examine node"
	ReadReport  Call = "read report"
	// EnrolNode makes the node, WriteNode gives it driver and credentials, EnsurePort the boot MAC.
	EnrolNode  Call = "enrol node"
	WriteNode  Call = "write node"
	EnsurePort Call = "ensure port"
	// SetProvision, SetPower and StartInspection ask Ironic for a change.
	SetProvision    Call = "set provision state"
	SetPower        Call = "set power"
	StartInspection Call = "start inspection"
	// Calls of a deployment.
	PrepareNode      Call = "prepare node"
	SetNodeCleaning  Call = "set cleaning"
	VacateNode       Call = "vacate node"
	LeaveMaintenance Call = "leave maintenance"
	// EnterMaintenance has Ironic accept the deletion of a node that is in use.
	EnterMaintenance Call = "enter maintenance"
	ReadConfig       Call = "read configuration"
	ConfirmHost      Call = "confirm host"
	StartDeployment  Call = "start deployment"
	RemoveNode       Call = "remove node"
	// SetHardware and the removal of annotations write to the host.
	SetHardware          Call = "set hardware"
	RemoveInspectRequest Call = "remove inspection request"
	RemoveRebootRequest  Call = "remove reboot request"
)

// Action is one call and what it needs.
type Action struct {
	Call Call
	// Node is the UUID of the node, Known the node as it was read.
	Node  string
	Known Node
	// Target is the state that is asked for.
	Target     string
	Access     Access
	Deployment Deployment
}

// Notice is an event about the host.
type Notice struct {
	// Type is that of a Kubernetes event; Action is what was done when it happened.
	Type, Reason, Action, Text string
}

// Decision is what is next in a pass.
type Decision struct {
	// Do is the next action; without a call there is none.
	Do Action
	// Known is the snapshot once that is done.
	Known Snapshot
	// Tell is said once that is done.
	Tell []Notice
	// Then ends the pass once that is done. Without it, what the action leads to is planned on.
	Then *Outcome
	// Step is where the pass leads the host, once it has ended.
	Step Step
	// Err is an error that no rule is for: the pass is tried again.
	Err error
}

// ErrLater says that other hosts ask the Ironic of this one, and that this one is woken when it is its turn.
var ErrLater = errors.New("other hosts ask this Ironic")

// ErrConfig says that a Secret with the configuration of the deployed system cannot be used.
var ErrConfig = errors.New("the configuration of the system cannot be used")

// Plan says what is next for a host that this operator manages.
func Plan(now time.Time, s Snapshot) Decision {
	event := EventOf(s.State, s.Facts)
	step, _ := Next(s.State, event)
	p := &pass{Snapshot: s, now: now, effect: step.Do}
	d := p.next(event)
	d.Step = step
	if o := d.Then; o != nil && step.Do != Rest && !o.Written && !o.Parked && o.Event != Nothing {
		d.Step, _ = Next(s.State, d.Then.Event)
	}
	return d
}

// pass is a plan that is being made.
type pass struct {
	Snapshot
	now    time.Time
	effect Effect
}

func (p *pass) next(event Event) Decision {
	switch {
	case event == InspectionRequested && inspectedIn(p.Host, p.now):
		return p.end(Outcome{Parked: true, After: p.now.Truncate(time.Second).Add(time.Second).Sub(p.now)})
	case event == NotYet:
		return p.end(p.notYet())
	case p.effect == Rest:
		return p.end(Outcome{Event: event})
	case p.Seen.Err != nil:
		return p.failure()
	default:
		return p.plan()
	}
}

// plan plans the effect. An effect that needs Ironic is admitted to it first, and acts on the recorded node only where that is the host's.
func (p *pass) plan() Decision {
	if d, idle := p.idle(); idle {
		return d
	}
	if !p.Seen.Connected {
		return p.do(Action{Call: Connect})
	}
	recorded := p.Host.Status.Provisioning.ID
	if recorded != "" && p.effect != DeleteNode {
		whose, looked := p.Seen.Held[recorded]
		if !looked {
			return p.do(Action{Call: Hold, Node: recorded})
		}
		if whose != "" {
			return p.notIts(whose)
		}
	}
	if n := p.Seen.Node; n != nil && n.Leaving && !n.Busy() && n.UUID == recorded && p.effect != Detach && p.effect != DeleteNode {
		// The host was to be detached, and is managed again: Ironic neither deploys on such a node nor enforces its power.
		p.Seen.Node = nil
		return p.do(Action{Call: LeaveMaintenance, Node: n.UUID})
	}
	return plans[p.effect](p)
}

// plans are the effects, which Ironic has admitted.
var plans = map[Effect]func(*pass) Decision{
	FindNode:       (*pass).findNode,
	Register:       func(p *pass) Decision { return registration{p}.register() },
	ImportHardware: (*pass).importHardware,
	InspectMachine: func(p *pass) Decision { return inspection{p}.inspect() },
	EndInspection:  (*pass).endInspection,
	MaintainPower:  (*pass).maintainPower,
	Deploy:         func(p *pass) Decision { return deployment{p}.deploy() },
	KeepDeployed:   func(p *pass) Decision { return deployment{p}.keepDeployed() },
	Undeploy:       func(p *pass) Decision { return deployment{p}.undeploy() },
	PowerOff:       (*pass).powerOff,
	Detach:         (*pass).detach,
	DeleteNode:     (*pass).removeNode,
}

// idle plans effects that have nothing to ask Ironic for.
func (p *pass) idle() (Decision, bool) {
	switch p.effect { //nolint:exhaustive // the others always ask Ironic
	case MaintainPower, KeepDeployed:
		return p.end(Outcome{Event: Nothing, Settled: true}), !p.Facts.PowerControl
	case Undeploy:
		return p.end(finished()), p.NodeID == "" && !p.cleansUnknown()
	case PowerOff:
		return p.end(finished()), p.NodeID == "" || !p.Facts.PowerControl
	case FindNode:
		return p.wait(metal3v1.ReasonWaitingForMachine, "Set spec.bootMACAddress to have the machine recognised, or set spec.bmc.", 0),
			p.Host.Spec.BootMACAddress == ""
	case Detach:
		return p.leftAlone(), p.NodeID == "" || !p.Facts.PowerControl
	case DeleteNode:
		if p.keepsNode() {
			p.KeepAway = true
			return p.end(Outcome{Event: Done}), true
		}
		// A node with the name of the host may be one of another cluster by now, to which the machine was moved.
		return p.end(Outcome{Event: Done}), p.Facts.Detached && p.NodeID == "" && p.Facts.PowerControl
	}
	return Decision{}, false
}

// keepsNode reports whether the user wants the node to stay in Ironic when the host goes.
func (p *pass) keepsNode() bool { return p.Host.Annotations[metal3v1.KeepNodeAnnotation] == "true" }

// notIts ends a pass over a host whose recorded node is not its own. Its deletion goes on, and leaves the node alone.
func (p *pass) notIts(whose string) Decision {
	if p.effect == Undeploy || p.effect == PowerOff {
		return p.end(finished())
	}
	return p.wait(metal3v1.ReasonMachineUsedByOther, Sentence(whose), machineRetry)
}

// do takes one action, and plans on with what it leads to.
func (p *pass) do(a Action, tell ...Notice) Decision {
	return Decision{Do: a, Known: p.Snapshot, Tell: tell}
}

// last takes one action, and ends the pass with an outcome once it is done.
func (p *pass) last(a Action, o Outcome, tell ...Notice) Decision {
	return Decision{Do: a, Known: p.Snapshot, Tell: tell, Then: &o}
}

func (p *pass) end(o Outcome, tell ...Notice) Decision {
	return Decision{Known: p.Snapshot, Tell: tell, Then: &o}
}

func (p *pass) wait(reason, message string, after time.Duration) Decision {
	return p.end(waiting(reason, message, after))
}

// NodeName is the name that the node of a host has.
func NodeName(h *metal3v1.BareMetalHost) string { return h.Namespace + "~" + h.Name }

func normal(reason, action, text string) Notice {
	return Notice{Type: corev1.EventTypeNormal, Reason: reason, Action: action, Text: text}
}

func warning(reason, action, text string) Notice {
	return Notice{Type: corev1.EventTypeWarning, Reason: reason, Action: action, Text: text}
}
