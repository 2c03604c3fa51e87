// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"errors"
	"strings"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

const (
	// BusyRetry is when a node is tried again that Ironic works on, or a host that changed meanwhile.
	BusyRetry = 2 * time.Second
	// SecretRetry is when a Secret is looked for again that was not there or did not fit: Secrets are not watched.
	SecretRetry = 15 * time.Second
	// EndpointRetry is when an Ironic is asked again that did not answer.
	EndpointRetry = 8 * time.Second
	// ParkedRetry is when a host is looked at again that waits for its turn at its Ironic. It is woken before.
	ParkedRetry = 30 * time.Second

	// soon continues a life at once.
	soon = time.Millisecond
	// answerRetry is when Ironic is asked again for an answer that takes seconds.
	answerRetry = time.Second
	// longRetry is when Ironic is asked again for what takes minutes.
	longRetry = 10 * time.Second
	// machineRetry is when a machine is looked for again that has not reported.
	machineRetry = time.Minute
	// powerCheck is how often the power of a machine is compared with what its host says.
	powerCheck = 5 * time.Minute
	// firstRetry is when what failed first is tried again. It doubles up to lastRetry.
	firstRetry, lastRetry = 15 * time.Second, 5 * time.Minute
	// refusedRetry is when refused credentials are tried again although they have not changed: management controllers lock accounts.
	refusedRetry = 10 * time.Minute
	// agentTime is how long an agent may take from its token to its first heartbeat: it looks at its disks between the two.
	agentTime = 2 * time.Minute
	// ramdiskTime is how long a ramdisk may be silent where Ironic ends nothing by itself. It is the time of Ironic's that applies elsewhere.
	ramdiskTime = 30 * time.Minute
	// tries is how often a deletion tries what may fail for good.
	tries = 3
)

// Outcome is what a pass led to.
type Outcome struct {
	Event Event
	// After is when to look again, 0 for when something changes. With Spread, a random fifth is added.
	After  time.Duration
	Spread bool
	// Reason and Message say what is waited for, or what failed.
	Reason, Message string
	// Kind says which step failed.
	Kind metal3v1.ErrorType
	// Settled says that nothing is wrong any more.
	Settled bool
	// Blocked says that Ironic itself is what is wrong.
	Blocked bool
	// Written says that the host was written to, so that what was read of it is old.
	Written bool
	// User says that only the user can help, so that it is said whatever failed before.
	User bool
	// Parked says that nothing is to be said or done yet.
	Parked bool
}

func waiting(reason, message string, after time.Duration) Outcome {
	return Outcome{Event: Nothing, After: after, Reason: reason, Message: message}
}

func finished() Outcome { return Outcome{Event: Done, Settled: true, After: soon} }

// failed ends a pass in which something failed, and remembers when it is due again.
func (p *pass) failed(kind metal3v1.ErrorType, reason, message string) Decision {
	m := &p.Memory
	m.Asked, m.Power = AskedNothing, ""
	m.Failures++
	after := min(firstRetry<<min(m.Failures-1, 5), lastRetry)
	if reason == metal3v1.ReasonBMCCredentialsRefused {
		after = refusedRetry
	}
	m.NotBefore = p.now.Add(after)
	if reason == metal3v1.ReasonCredentialsNotFound || reason == metal3v1.ReasonBMCCredentialsRefused {
		after = SecretRetry // a new one is tried at once
	}
	return p.end(Outcome{Event: Failed, After: after, Reason: reason, Message: message, Kind: kind})
}

// notYet waits until what failed is due again, and looks for another Secret meanwhile.
func (p *pass) notYet() Outcome {
	after := p.Memory.NotBefore.Sub(p.now)
	if p.Facts.PowerControl {
		after = min(after, SecretRetry)
	}
	return Outcome{Event: NotYet, Parked: true, After: after}
}

// expired reports whether something has been waited for as long as it may take, and keeps since when in the memory. This process measures the time itself, so
// that the clock of Ironic does not matter.
func (p *pass) expired(since *time.Time, waits bool, limit time.Duration) bool {
	switch {
	case !waits:
		*since = time.Time{}
	case since.IsZero():
		*since = p.now
	}
	return waits && p.now.Sub(*since) >= limit
}

// late reports whether a ramdisk that is waited for has had its time, and Ironic will not say so. Each sign of the ramdisk gives it that time anew.
func (p *pass) late(n Node, waits bool) bool {
	if p.Memory.Touched != n.Touched {
		p.Memory.Touched, p.Memory.Ramdisk = n.Touched, time.Time{}
	}
	return p.expired(&p.Memory.Ramdisk, n.Untimed && waits, ramdiskTime)
}

// lookSeldom is when to look again at what takes long: seldom when it takes longer.
func (p *pass) lookSeldom() time.Duration {
	after := min(answerRetry<<min(p.Memory.Looks, 5), longRetry)
	p.Memory.Looks++
	return after
}

// failure says what follows from an action that failed.
func (p *pass) failure() Decision {
	err, at := p.Seen.Err, p.Seen.At
	p.Seen.Err, p.Seen.At = nil, ""
	if p.effect == DeleteNode && at == ReadNode && errors.Is(err, inventory.ErrNotFound) && !p.Seen.Lost {
		p.Seen.Lost = true // the machine may have come back as another node
		return p.plan()
	}
	if p.effect == Detach && errors.Is(err, inventory.ErrNotFound) {
		p.NodeID = ""
		return p.plan()
	}
	if d, ok := (deployment{p}).failedAt(err, at); ok {
		return d
	}
	if (p.effect == Register || p.Memory.Asked.registers()) && (at == WriteNode || at == EnsurePort || at == SetProvision || at == SetPower) {
		p.Memory.Asked = AskedNothing
	}
	return p.ironicFailed(err)
}

// ironicFailed says what follows from what Ironic answered, or did not.
func (p *pass) ironicFailed(err error) Decision {
	var e *inventory.EndpointError
	switch {
	case p.keepsNode() && (p.effect == Undeploy || p.effect == PowerOff):
		// The user has no use for the node any more, and ends a deletion that waits for an Ironic that may be gone.
		p.KeepAway = true
		return p.end(finished())
	case errors.Is(err, ErrLater):
		return p.end(Outcome{Event: Nothing, After: ParkedRetry, Parked: true})
	case errors.Is(err, ErrNetwork):
		return p.failed(p.effect.kind(), metal3v1.ReasonConfigUnusable, Sentence(err.Error()))
	case errors.Is(err, inventory.ErrNotFound) && (p.State == Provisioned || p.cleansUnknown()):
		p.NodeID, p.Memory.Asked = "", AskedNothing
		return p.wait(metal3v1.ReasonNodeNotFound, "Ironic does not know the node of this machine any more. The node is made anew. A machine that is provisioned is "+
			"adopted and stays as it is; one that is deprovisioned is cleaned.", answerRetry)
	case errors.Is(err, inventory.ErrNotFound):
		p.NodeID = ""
		return p.end(Outcome{Event: NodeLost, After: answerRetry})
	case errors.Is(err, inventory.ErrBusy):
		return p.wait(metal3v1.ReasonNodeBusy, "Ironic works on the node at the moment.", BusyRetry)
	case errors.Is(err, inventory.ErrFull):
		return p.wait(metal3v1.ReasonNodeBusy, "Ironic does as much at once as it may, and begins with this later: "+strings.TrimRight(err.Error(), ". ")+".", longRetry)
	case errors.Is(err, inventory.ErrRefused):
		return p.failed(p.effect.kind(), metal3v1.ReasonNodeRefused, err.Error())
	case errors.As(err, &e):
		o := waiting(string(e.Problem), e.Text, EndpointRetry)
		o.Blocked = true
		return p.end(o)
	default:
		return Decision{Known: p.Snapshot, Err: err}
	}
}

// kind says which step of a life an effect belongs to.
func (e Effect) kind() metal3v1.ErrorType {
	switch e {
	case InspectMachine, EndInspection, ImportHardware:
		return metal3v1.InspectionError
	case MaintainPower, PowerOff:
		return metal3v1.PowerManagementError
	case Deploy, Undeploy, KeepDeployed:
		return metal3v1.ProvisioningError
	default:
		return metal3v1.RegistrationError
	}
}

// Sentence makes a sentence of a text without a capital and a full stop.
func Sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }

// Reason writes a state as the reason of a condition or an event.
func (s State) Reason() string {
	if s == Discovered {
		return "Discovered"
	}
	var b strings.Builder
	for word := range strings.FieldsSeq(string(s)) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	if b.Len() == 0 {
		return "New"
	}
	return b.String()
}
