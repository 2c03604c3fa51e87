// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"errors"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// deployment is the part of a pass that has an image deployed, keeps it, or ends it.
type deployment struct{ *pass }

// deploy has the image of a host deployed. The state Provisioning is written before, with the image; from that and from the node a process that knows nothing
// else sees what is next.
func (p deployment) deploy() Decision {
	if p.NodeID == "" {
		return p.end(Outcome{Event: NodeLost, After: answerRetry})
	}
	d, err := DeploymentOf(p.Host)
	switch {
	case err != nil:
		return p.failed(metal3v1.ProvisioningError, metal3v1.ReasonImageUnusable, Sentence(err.Error()))
	case p.Seen.Node == nil:
		return p.do(Action{Call: ReadNode, Node: p.NodeID})
	}
	if d, renews := p.renew(); renews {
		return d
	}
	return p.carry(d, DeploymentTask(*p.Seen.Node, d, p.past()))
}

// renew gives the node the address and the credentials of the management controller where they are others than those that it accepted, so that Ironic can go on. It waits
// while Ironic works on the node. A deletion does without what is refused.
func (p deployment) renew() (Decision, bool) {
	n := *p.Seen.Node
	if !p.Facts.PowerControl || !p.Secret.Found || p.Secret.Username == "" || p.Secret.Password == "" || n.Busy() {
		return Decision{}, false
	}
	a, err := p.access(p.Secret.Password)
	if err != nil || !p.Facts.Unverified && a.Matches(n) {
		return Decision{}, false
	}
	next := *p.pass
	switch {
	case p.Facts.Deleting && (p.Memory.Failures > 0 || !p.Memory.Asked.registers()):
		return Decision{}, false
	case !p.Facts.Unverified, !p.Memory.Asked.registers():
		next.Facts.Unverified, next.Good, next.Memory.Asked = true, metal3v1.CredentialsStatus{}, AskedNothing
	}
	d := registration{&next}.verify(n, a)
	return d, !p.Facts.Deleting || d.Then == nil || d.Then.Event != Failed
}

// keepDeployed has the machine adopted where its node was made anew, and maintains the power.
func (p deployment) keepDeployed() Decision {
	if p.Seen.Node == nil {
		return p.do(Action{Call: ReadNode, Node: p.NodeID})
	}
	d, err := DeploymentOf(p.Host)
	if err != nil { // the image was deployed as it is written; only an adoption needs it anew
		d = RemovalOf(p.Host)
	}
	d.Private = false // nothing is pulled
	task := AdoptionTask(*p.Seen.Node, d, p.past())
	adopts := task.Do != Await && p.Seen.Node.State != inventory.NodeEnroll
	switch {
	case task.Do == Accept, adopts && p.Host.Status.Provisioning.CustomDeploy != nil: // Ironic adopts images
		return p.maintainPower()
	case adopts && err != nil:
		return p.failed(metal3v1.ProvisioningError, metal3v1.ReasonImageUnusable, Sentence(err.Error()))
	}
	return p.carry(d, task)
}

// undeploy ends what was deployed, and has the machine cleaned. A deletion does not wait for ever for what fails, and leaves a detached machine as it is.
func (p deployment) undeploy() Decision {
	switch {
	case p.Facts.Deleting && p.keepsNode():
		p.KeepAway = true
		return p.end(finished())
	case p.Facts.Deleting && p.Facts.Detached:
		return p.end(finished())
	case p.Host.Status.Provisioning.ID == "" && p.cleansUnknown():
		return p.registerAnew()
	case p.Seen.Node == nil:
		return p.do(Action{Call: ReadNode, Node: p.NodeID})
	}
	if d, renews := p.renew(); renews {
		return d
	}
	d := RemovalOf(p.Host)
	task := RemovalTask(*p.Seen.Node, d, p.past())
	if task.Do == Refuse && p.Facts.Deleting && (p.Memory.Failures+1 >= tries || task.Reason == metal3v1.ReasonBMCCredentialsRefused) {
		return p.end(Outcome{Event: GaveUp, After: soon})
	}
	return p.carry(d, task)
}

// cleansUnknown reports whether a machine is to be cleaned although Ironic does not know it: it was deployed, and Ironic has lost its node since.
func (p *pass) cleansUnknown() bool {
	d := RemovalOf(p.Host)
	return p.State == Deprovisioning && d.Used && d.Clean && !d.Manual && (!p.Facts.Deleting || !p.keepsNode() && !p.Facts.Detached)
}

// registerAnew makes the node of a machine anew that is to be cleaned. A deletion does without where that is not possible.
func (p deployment) registerAnew() Decision {
	d := registration(p).register()
	if o := d.Then; p.Facts.Deleting && o != nil && o.Event == Failed && (o.Reason != metal3v1.ReasonBMCUnreachable || d.Known.Memory.Failures >= tries) {
		return p.end(Outcome{Event: GaveUp, After: soon})
	}
	return d
}

// past is what the next step of a deployment rests on.
func (p deployment) past() Past {
	n := *p.Seen.Node
	return Past{
		Asked: p.Memory.Asked, Reported: p.Host.Status.ErrorType == metal3v1.ProvisioningError,
		Silent: p.silent(), Late: p.late(n, n.AwaitsRamdisk()),
	}
}

// silent reports whether the agent that has taken the node's token has had its time for a first heartbeat.
func (p deployment) silent() bool {
	return p.expired(&p.Memory.Token, p.Seen.Node.AwaitsAgent(), agentTime)
}

// carry carries a step of a deployment out, or of its end.
func (p deployment) carry(d Deployment, task Task) Decision {
	switch task.Do { //nolint:exhaustive // the others ask Ironic for something
	case Await:
		o := waiting(task.Reason, task.Why, p.lookSeldom())
		o.User = task.User
		return p.end(o)
	case Refuse:
		return p.failed(metal3v1.ProvisioningError, task.Reason, osimage.WithoutURLSecrets(task.Why))
	case Accept:
		return p.end(finished())
	}
	p.Memory.Looks = 0
	a := Action{Node: p.NodeID, Known: *p.Seen.Node, Deployment: d}
	switch task.Do { //nolint:exhaustive // the others are above
	case Enrol:
		a.Call, a.Access = WriteNode, manualAccess()
	case Prepare:
		p.Memory.Asked = AskedPrepare
		a.Call = PrepareNode
	case SetCleaning:
		a.Call = SetNodeCleaning
	case Vacate:
		a.Call = VacateNode
	case EndMaintenance:
		a.Call = LeaveMaintenance
	case Restart:
		p.Memory.Token, p.Memory.Ramdisk = time.Time{}, time.Time{}
		a.Call, a.Target = SetPower, Rebooting
		if task.Reason == "" {
			return p.last(a, p.askedNext(), silentRamdisk(task))
		}
		d := p.failed(metal3v1.ProvisioningError, task.Reason, prefixes[task.Reason]+silence+". It is tried again.")
		d.Do, d.Tell = a, append(d.Tell, silentRamdisk(task))
		return d
	case Ask:
		return p.ask(a, task)
	}
	return p.last(a, p.askedNext())
}

func (p deployment) askedNext() Outcome {
	return waiting(p.State.Reason(), "Ironic was asked for the next step.", answerRetry)
}

// asks are the changes of the provision state, and what a process that asked for them remembers.
var asks = map[string]Asked{
	AskManage: AskedManage, AskProvide: AskedProvide, AskDeploy: AskedDeploy, AskDelete: AskedUndeploy, AskAdopt: AskedAdopt,
}

// ask asks for a change of the provision state. The two that cannot be taken back are asked for only while the API server has the host as it was read.
func (p deployment) ask(a Action, task Task) Decision {
	target := task.Ask
	switch {
	case target == AskDeploy && p.Seen.Config == nil:
		return p.do(Action{Call: ReadConfig})
	case (target == AskDeploy || target == AskDelete) && !p.Seen.Unchanged:
		return p.do(Action{Call: ConfirmHost})
	}
	if task.Reason == "" { // what is late ends as a failure of what was asked for
		p.Memory.Asked = asks[target]
	}
	a.Call, a.Target = SetProvision, target
	var tell []Notice
	switch target {
	case AskDeploy:
		a.Call = StartDeployment
		tell = append(tell, normal(metal3v1.EventDeploymentStarted, "Provision", "Asked Ironic to deploy "+osimage.Name(p.Host)+" on node "+p.NodeID))
	case AskDelete:
		tell = append(tell, normal(metal3v1.EventCleaningStarted, "Deprovision", "Asked Ironic to end the deployment on node "+p.NodeID))
	case AskAbort:
		p.Memory.Token, p.Memory.Ramdisk = time.Time{}, time.Time{}
		tell = append(tell, silentRamdisk(task))
	case AskAdopt:
		tell = append(tell, normal(metal3v1.EventAdoptionStarted, "Provision", "Asked Ironic to adopt the machine as it is, on node "+p.NodeID))
	}
	return p.last(a, p.askedNext(), tell...)
}

// silentRamdisk tells why a ramdisk is started again.
func silentRamdisk(task Task) Notice {
	return warning(metal3v1.EventAgentSilent, "Provision", task.Why)
}

// failedAt says what follows when Ironic, or a Secret, does not fit a step of a deployment or its end.
func (p deployment) failedAt(err error, at Call) (Decision, bool) {
	if p.effect.kind() != metal3v1.ProvisioningError {
		return Decision{}, false
	}
	switch at {
	case WriteNode, PrepareNode, SetNodeCleaning, VacateNode, LeaveMaintenance, SetProvision, ReadConfig, ConfirmHost, StartDeployment:
	default:
		return Decision{}, false
	}
	switch {
	case errors.Is(err, ErrConfig):
		return p.failed(metal3v1.ProvisioningError, metal3v1.ReasonConfigUnusable, Sentence(err.Error())), true
	case errors.Is(err, inventory.ErrRefused):
		refused := Refused(p.effect, err.Error())
		return p.failed(metal3v1.ProvisioningError, refused.Reason, osimage.WithoutURLSecrets(refused.Why)), true
	}
	return Decision{}, false
}
