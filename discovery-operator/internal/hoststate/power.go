// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"encoding/json"
	"slices"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// DesiredPower is what a host says about its power.
type DesiredPower struct {
	// On says that the machine shall have power.
	On bool
	// Reboots are the reboot annotations, in order; Once says that the one without a key is among them, which is removed when it is done.
	Reboots []string
	Once    bool
	// Hard says that the machine need not be asked to shut down.
	Hard bool
	// KeepOn says that the machine is never switched off, only rebooted.
	KeepOn bool
}

// DesiredPowerOf reads what a host says about its power.
func DesiredPowerOf(h *metal3v1.BareMetalHost) DesiredPower {
	w := DesiredPower{On: h.Spec.Online, KeepOn: h.Spec.DisablePowerOff}
	for key, value := range h.Annotations {
		if key != metal3v1.RebootAnnotation && !strings.HasPrefix(key, metal3v1.RebootAnnotation+"/") {
			continue
		}
		w.Reboots = append(w.Reboots, key)
		w.Once = w.Once || key == metal3v1.RebootAnnotation
		var mode struct {
			Mode string `json:"mode"`
		}
		if json.Unmarshal([]byte(value), &mode) == nil && mode.Mode == "hard" {
			w.Hard = true
		}
	}
	slices.Sort(w.Reboots)
	return w
}

// PowerStep is the next step towards what a host says about its power.
type PowerStep struct {
	// Ask is what to ask of Ironic, empty for nothing.
	Ask string
	// Rebooted says that the reboot without a key is done, once what is asked is asked, and its annotation can go.
	Rebooted bool
	// Wait says that Ironic is at it.
	Wait bool
	// Failed says that Ironic could not do what was asked last: see the node's last error.
	Failed bool
}

// Power compares a node with what its host says. asked is what was asked of Ironic last, as far as this process remembers.
func Power(n Node, w DesiredPower, asked string) PowerStep {
	on := w.On && len(w.Reboots) == 0
	off := SoftDown
	if w.Hard {
		off = PowerDown
	}
	if w.KeepOn {
		// A host that has to be off for as long as an annotation stays cannot be, so only the reboot without a key is done.
		on = w.On || n.Power == PowerOn
	}
	switch {
	case n.Busy():
		return PowerStep{Wait: true}
	case w.KeepOn && w.Once && n.Power == PowerOn:
		ask := SoftRestart
		if w.Hard {
			ask = Rebooting
		}
		return PowerStep{Ask: ask, Rebooted: true}
	case w.Once && n.Power == PowerDown:
		return PowerStep{Rebooted: true}
	case on == (n.Power == PowerOn) && n.Power != "":
		return PowerStep{}
	case on && asked == PowerOn && n.LastError != "", !on && asked == PowerDown && n.LastError != "":
		return PowerStep{Failed: true}
	case on:
		return PowerStep{Ask: PowerOn}
	case asked == SoftDown && n.LastError != "": // a system that does not listen is switched off
		return PowerStep{Ask: PowerDown}
	case asked == PowerDown:
		return PowerStep{Ask: PowerDown}
	default:
		return PowerStep{Ask: off}
	}
}

// maintainPower makes the power of a machine what its host says.
func (p *pass) maintainPower() Decision {
	switch {
	case p.Seen.Rebooted:
		return p.last(Action{Call: RemoveRebootRequest}, Outcome{Written: true})
	case p.Seen.Node == nil:
		return p.do(Action{Call: ReadNode, Node: p.NodeID})
	}
	n := *p.Seen.Node
	if p.staleAccess(n, n.InterfacesChange()) {
		return p.readdress()
	}
	if n.Power != "" {
		on := n.Power == PowerOn
		p.Powered = &on
	}
	step := Power(n, DesiredPowerOf(p.Host), p.Memory.Power)
	o := waiting(metal3v1.ReasonPoweringOn, "The machine is being switched on.", answerRetry)
	if step.Ask != PowerOn && p.Memory.Power != PowerOn {
		o.Reason, o.Message = metal3v1.ReasonPoweringOff, "The machine is being switched off."
	}
	switch {
	case step.Wait:
		return p.end(o)
	case step.Failed:
		reason := metal3v1.ReasonPowerChangeFailed
		if Refusal(n.LastError) {
			reason = metal3v1.ReasonBMCCredentialsRefused
		}
		return p.failed(metal3v1.PowerManagementError, reason, n.LastError)
	case step.Ask != "":
		p.Memory.Power, p.Seen.Rebooted = step.Ask, step.Rebooted
		d := p.do(Action{Call: SetPower, Node: p.NodeID, Target: step.Ask}, normal("PowerRequested", "Power", "Asked Ironic for "+step.Ask))
		if !step.Rebooted {
			d.Then = &o
		}
		return d
	case step.Rebooted:
		return p.last(Action{Call: RemoveRebootRequest}, Outcome{Written: true})
	}
	p.Memory.Power = ""
	return p.end(Outcome{Event: Nothing, Settled: true, After: powerCheck, Spread: true})
}

// staleAccess reports whether the node does not have the driver and the address that the host names, or the boot interface, where that can be changed.
func (p *pass) staleAccess(n Node, boots bool) bool {
	if !p.Secret.Found {
		return false
	}
	access, err := p.access("")
	return err == nil && (!access.Matches(n) || boots && !access.Boots(n))
}

// readdress has the node registered with the address that the host names now.
func (p *pass) readdress() Decision {
	p.Good = metal3v1.CredentialsStatus{}
	return p.end(Outcome{Event: CredentialsArrived, After: soon})
}

// powerOff switches a machine off before its host goes. A machine that cannot be switched off does not hold the deletion up.
func (p *pass) powerOff() Decision {
	switch {
	case p.Good.Reference == nil, p.Host.Spec.DisablePowerOff, p.Facts.Detached:
		return p.end(finished())
	case p.Seen.Node == nil:
		return p.do(Action{Call: ReadNode, Node: p.NodeID})
	}
	n := *p.Seen.Node
	if d, wait := p.leave(n, waiting(metal3v1.ReasonPoweringOff, "The inspection is being ended.", answerRetry)); wait {
		return d
	}
	off := waiting(metal3v1.ReasonPoweringOff, "The machine is being switched off.", answerRetry)
	switch {
	case n.Busy():
		return p.end(off)
	case n.Power == PowerDown:
		p.Powered = new(bool)
		return p.end(finished())
	case p.Memory.Power == PowerDown && p.Memory.Failures+1 >= tries:
		return p.end(Outcome{Event: GaveUp, After: soon})
	case p.Memory.Power == PowerDown:
		return p.failed(metal3v1.PowerManagementError, metal3v1.ReasonPowerChangeFailed, n.LastError)
	}
	p.Memory.Power = PowerDown
	return p.last(Action{Call: SetPower, Node: p.NodeID, Target: PowerDown}, off)
}
