// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"strings"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Examination is what the next step of an inspection rests on, beside the node.
type Examination struct {
	// Again says that the hardware is known and a user asked for a new inspection: only an inspection that ended after Since will do.
	Again bool
	Since time.Time
	// Asked is what this process asked for, and Before what Reported of the node was then.
	Asked  Asked
	Before time.Time
	// Reported says that the host says already that an inspection failed.
	Reported bool
}

// Inspection says what is next for a node whose machine is to be inspected. Ironic's and our clocks may differ: what this process has
// seen under way counts in any case, so that a difference costs one more inspection at worst, and only when the process ended meanwhile. An inspection that
// ended before it was asked for never counts: Ironic takes the end of ironic-inspector's last inspection for that of the next, until that has begun.
func Inspection(n Node, e Examination) Move {
	done := !n.Inspected.IsZero() && (e.Asked == AskedInspect || !n.Inspected.Before(e.Since))
	switch {
	case n.Busy():
		return Await
	case n.State == InspectFailed && (e.Asked == AskedInspect || !e.Reported):
		return Refuse
	case n.State == InspectFailed:
		return Inspect
	case e.Asked == AskedInspect && !n.Inspected.IsZero() && n.Inspected.Equal(e.Before):
		return Await
	case !e.Again || done:
		return Accept
	case e.Asked == AskedInspect:
		return Refuse
	default:
		return Inspect
	}
}

// Leave is the next step that leads a node out of an inspection that is not wanted any more: what to ask of Ironic, empty for nothing, or
// whether to wait. Ironic neither deletes a node in an inspection nor one whose inspection failed.
func Leave(n Node) (ask string, wait bool) {
	switch n.State {
	case InspectWait:
		return "abort", true
	case InspectFailed:
		return "manage", true
	default:
		return "", n.State == Inspects
	}
}

// importHardware reads what Ironic knows of the machine. It never has the machine inspected.
func (p *pass) importHardware() Decision {
	switch {
	case p.NodeID == "":
		return p.end(Outcome{Event: NodeLost, After: soon})
	case p.Seen.Node == nil:
		return p.do(Action{Call: ReadNode, Node: p.NodeID})
	case !p.Seen.Reported:
		return p.do(Action{Call: ReadReport, Node: p.NodeID})
	case p.Seen.Report != nil:
		return p.last(Action{Call: SetHardware}, Outcome{Written: true}, cut(p.Seen.Report)...)
	case p.Facts.PowerControl:
		return p.end(Outcome{Event: NoInspectionData, Settled: true, After: soon})
	default:
		return p.wait(metal3v1.ReasonWaitingForData, "Ironic has no inspection data of this machine yet; no operator triggers an inspection.", machineRetry/2)
	}
}

// cut says what a host leaves out of what its machine reported.
func cut(r *inventory.Report) []Notice {
	if len(r.Cut) == 0 {
		return nil
	}
	return []Notice{warning(metal3v1.EventHardwareCut, "Inspect", "The machine reported more than a host can hold. Left out: "+strings.Join(r.Cut, ", "))}
}

// inspection is the part of a pass that has a machine inspected.
type inspection struct{ *pass }

// inspect has the machine inspected: Ironic switches it on through its management controller, it boots the ramdisk, and that reports to Ironic. The state
// Inspecting is written before, with the time; from that and from the node a process that knows nothing else sees what is next. The annotation that asks for
// an inspection goes last, so that what interrupts the inspection does not lose the request.
func (p inspection) inspect() Decision {
	switch {
	case p.Seen.HardwareSet && p.Host.InspectionRequested():
		return p.last(Action{Call: RemoveInspectRequest}, Outcome{Written: true})
	case p.Seen.HardwareSet:
		return p.end(Outcome{Written: true})
	case p.Seen.Node == nil:
		return p.do(Action{Call: ExamineNode, Node: p.NodeID})
	}
	n := *p.Seen.Node
	if p.staleAccess(n, true) {
		if d, wait := p.leave(n, waiting(metal3v1.ReasonInspecting, "The inspection is being ended, because spec.bmc.address has changed.", answerRetry)); wait {
			return d
		}
		return p.readdress()
	}
	late := p.late(n, n.State == InspectWait)
	if late && !n.Locked {
		d := p.inspectionFailed(silence)
		d.Do = Action{Call: SetProvision, Node: p.NodeID, Target: AskAbort}
		return d
	}
	switch Inspection(n, p.examination()) { //nolint:exhaustive // the others belong to a registration
	case Await:
		// The failure of an inspection that is late was told when it was aborted.
		if !late && (n.State == Inspects || n.State == InspectWait) {
			p.Memory.Asked = AskedInspect
		}
		return p.end(p.inspecting(n))
	case Refuse:
		return p.inspectionFailed(n.LastError)
	case Accept:
		switch {
		case !p.Seen.Reported:
			return p.do(Action{Call: ReadReport, Node: p.NodeID})
		case p.Seen.Report != nil:
			p.Seen.HardwareSet = true
			return p.do(Action{Call: SetHardware},
				append(cut(p.Seen.Report), normal(metal3v1.EventInspectionComplete, "Inspect", "The hardware of the machine is known"))...)
		case p.Memory.Asked == AskedInspect:
			return p.inspectionFailed("Ironic has no inspection data after the inspection")
		}
	}
	return p.startInspection(n)
}

func (p inspection) examination() Examination {
	e := Examination{
		Again: !p.Host.NeedsHardwareInspection(), Asked: p.Memory.Asked, Before: p.Memory.Reported,
		Reported: p.Host.Status.ErrorType == metal3v1.InspectionError,
	}
	if start := p.Host.Status.OperationHistory.Inspect.Start; start != nil {
		e.Since = start.Time
	}
	return e
}

func (p inspection) startInspection(n Node) Decision {
	if n.State == inventory.NodeAvailable { // it has to be manageable first
		return p.last(Action{Call: SetProvision, Node: p.NodeID, Target: AskManage},
			waiting(metal3v1.ReasonInspecting, "Ironic prepares the inspection.", answerRetry))
	}
	p.Memory.Reported, p.Memory.Asked = n.Reported, AskedInspect
	return p.last(Action{Call: StartInspection, Known: n}, p.inspecting(n),
		normal(metal3v1.EventInspectionStarted, "Inspect", "Asked Ironic to inspect the machine of node "+p.NodeID))
}

// inspectedIn reports whether an inspection ended in this second. A status has whole seconds: the end of that inspection could be taken for the end of one
// that begins in the same second.
func inspectedIn(h *metal3v1.BareMetalHost, now time.Time) bool {
	end := h.Status.OperationHistory.Inspect.End
	return end != nil && end.Unix() == now.Unix()
}

// inspecting waits for an inspection.
func (p inspection) inspecting(n Node) Outcome {
	message := "Ironic prepares the inspection."
	if n.State == InspectWait {
		message = "The machine boots the ramdisk, which reports its hardware."
	}
	return waiting(metal3v1.ReasonInspecting, message, p.lookSeldom())
}

func (p inspection) inspectionFailed(why string) Decision {
	if why == "" {
		why = "Ironic does not say why"
	}
	reason := metal3v1.ReasonInspectionFailed
	if Refusal(why) {
		reason = metal3v1.ReasonBMCCredentialsRefused
	}
	p.Memory.Looks = 0
	return p.failed(metal3v1.InspectionError, reason, "The inspection failed: "+strings.TrimRight(why, ".")+". It is tried again.")
}

// endInspection leads a node out of an inspection that is not wanted any more.
func (p *pass) endInspection() Decision {
	if p.Seen.Node == nil {
		return p.do(Action{Call: ReadNode, Node: p.NodeID})
	}
	if d, wait := p.leave(*p.Seen.Node, waiting(metal3v1.ReasonInspecting, "The inspection is being ended.", answerRetry)); wait {
		return d
	}
	return p.end(finished())
}

// leave asks Ironic to end an inspection of a node, and reports whether that has to be waited for.
func (p *pass) leave(n Node, o Outcome) (d Decision, wait bool) {
	ask, wait := Leave(n)
	if ask != "" && !n.Locked {
		return p.last(Action{Call: SetProvision, Node: n.UUID, Target: ask}, o), wait
	}
	return p.end(o), wait
}
