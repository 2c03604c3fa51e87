// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Provision states of a deployment and of its end, as Ironic writes them.
const (
	Deploying    = "deploying"
	DeployWait   = "wait call-back"
	DeployFailed = "deploy failed"
	Active       = "active"
	Undeploying  = "deleting"
	Cleaning     = "cleaning"
	CleanWait    = "clean wait"
	CleanFailed  = "clean failed"
	NodeError    = "error"
)

// Changes of the provision state that can be asked for.
const (
	AskManage  = "manage"
	AskProvide = "provide"
	AskDeploy  = "active"
	AskDelete  = "deleted"
	AskAbort   = "abort"
)

// Requests of a deployment that this process can have made to Ironic.
const (
	AskedProvide Asked = "provide"
	// AskedPrepare says that the node was told what to deploy.
	AskedPrepare  Asked = "prepare"
	AskedDeploy   Asked = "deploy"
	AskedUndeploy Asked = "undeploy"
)

// Driver and power interface of a machine without management controller: its user switches it, and Ironic takes that for done. The power interface
// "agent" would restart it through the agent, and cannot: Ironic forgets the agent's address before it asks.
const (
	ManualDriver  = "manual-management"
	ManualPower   = "fake"
	RamdiskDeploy = "ramdisk"
	DirectDeploy  = "direct"
	customDeploy  = "custom-agent"
	keyImage      = "image_source"
	keyISO        = "boot_iso"
	keyAlgorithm  = "image_os_hash_algo"
	keyHash       = "image_os_hash_value"
	keyChecksum   = "image_checksum"
	keyFormat     = "image_disk_format"
	keyRootDevice = "root_device"
	keyCapability = "capabilities"
	// keyConfigDrive is where Ironic keeps the config drive of the last deployment that was asked for. It masks it.
	keyConfigDrive = "configdrive"
	// KeyPullSecret is the key of instance_info for the credentials of a registry.
	KeyPullSecret = "image_pull_secret" //nolint:gosec // the name of a key is no secret
)

// deployKeys are the keys of instance_info that tell a node what to deploy; Ironic adds others.
var deployKeys = []string{keyImage, keyISO, keyAlgorithm, keyHash, keyChecksum, keyFormat, keyRootDevice, keyCapability}

// Deployment is what a node needs to know to have an image deployed.
type Deployment struct {
	// Instance is the UUID under which the host occupies the node.
	Instance string
	// Name is that of the host's node, and Recorded the image that is, or is to be, on the machine. Together they show that the host occupied the node under another UUID, see former.
	Name, Recorded string
	// Info is the node's instance_info.
	Info map[string]any
	// ISO says that the image is booted, and nothing is written to a disk.
	ISO bool
	// Manual says that nothing but the agent in the ramdisk can restart the machine.
	Manual bool
	// Clean says that the disks are cleaned between two uses.
	Clean bool
	// Used says that a deployment came to its end on the machine, so that it is to be cleaned also where its node does not know of it.
	Used bool
	// Private says that a Secret opens the registry of the image. Ironic does not show what it was told of it.
	Private bool
	Machine Machine
}

// RemovalOf reads how a host wants a deployment to end.
func RemovalOf(h *metal3v1.BareMetalHost) Deployment {
	d := Deployment{
		Instance: string(h.UID), Name: NodeName(h), Manual: !h.HasPowerControl(), Clean: h.Spec.AutomatedCleaningMode != "disabled", Info: map[string]any{},
		Used: h.Status.OperationHistory.Provision.End != nil,
	}
	for _, image := range []*metal3v1.Image{h.Spec.Image, h.Status.Provisioning.Image} {
		if image != nil && image.URL != "" {
			d.Recorded = image.URL
		}
	}
	return d
}

// former reports whether the host itself occupies a node, from before it was moved to another cluster, where it has another UID: the node has its name and its image.
// Ironic replaces no instance by another one: it is removed before.
func (d Deployment) former(n Node) bool {
	on := image(n.Deployment)
	return n.Instance != "" && n.Instance != d.Instance && n.Name == d.Name && on != "" && shows(on, d.Recorded)
}

// DeploymentOf reads what a host wants to have deployed. It fails with a sentence for the user.
func DeploymentOf(h *metal3v1.BareMetalHost) (Deployment, error) {
	d := RemovalOf(h)
	if h.Spec.CustomDeploy != nil {
		return d, fmt.Errorf("custom deployments are not supported: remove spec.customDeploy and set spec.image")
	}
	if h.Spec.Image == nil || h.Spec.Image.URL == "" {
		return d, fmt.Errorf("the image has no URL: set spec.image.url")
	}
	image := h.Spec.Image
	if err := osimage.Check(image); err != nil {
		return d, err
	}
	if d.ISO = osimage.IsLive(image); d.ISO {
		d.Info[keyISO] = image.URL
	} else {
		d.Info[keyImage] = image.URL
		if image.DiskFormat != nil && *image.DiskFormat != "" {
			d.Info[keyFormat] = *image.DiskFormat
		}
		d.checksum(image)
	}
	d.Private = osimage.PullSecretName(image) != ""
	if hints := osimage.RootDevice(h.Spec.RootDeviceHints); len(hints) > 0 {
		d.Info[keyRootDevice] = hints
	}
	switch h.Spec.BootMode {
	case "UEFI":
		d.Info[keyCapability] = map[string]any{"boot_mode": "uefi"}
	case "UEFISecureBoot":
		d.Info[keyCapability] = map[string]any{"boot_mode": "uefi", "secure_boot": "true"}
	case "legacy":
		d.Info[keyCapability] = map[string]any{"boot_mode": "bios"}
	}
	return d, nil
}

// checksum tells how the image is verified.
func (d *Deployment) checksum(image *metal3v1.Image) {
	switch {
	case image.Checksum == "":
	case image.ChecksumType == osimage.ChecksumIsAuto:
		d.Info[keyChecksum] = image.Checksum
	default:
		d.Info[keyAlgorithm], d.Info[keyHash] = osimage.ChecksumType(image), image.Checksum
	}
}

// image is the URL of the image in a node's instance_info.
func image(info map[string]any) string {
	for _, key := range []string{keyImage, keyISO} {
		if text, ok := info[key].(string); ok && text != "" {
			return text
		}
	}
	return ""
}

// manualAccess is the access to a machine without management controller.
func manualAccess() Access {
	return Access{Driver: ManualDriver, Info: map[string]string{}, PowerBy: ManualPower}
}

// prepared reports whether a node knows all that it needs to deploy, as far as Ironic shows it.
func (d Deployment) prepared(n Node) bool {
	for _, key := range deployKeys {
		if !shows(n.Deployment[key], d.Info[key]) {
			return false
		}
	}
	if d.ISO && n.Deployment[keyConfigDrive] != nil { // it is attached as long as no other one is given
		return false
	}
	return n.Instance == d.Instance && d.DeployedBy(n.Deploy) && n.cleans(d.Clean) && (!d.Manual || n.manual())
}

// DeployedBy reports whether a deploy interface deploys this. The one for custom deployments, which another operator may have left, writes no image: Ironic would call
// the machine deployed.
func (d Deployment) DeployedBy(by string) bool {
	return (by == RamdiskDeploy) == d.ISO && by != customDeploy
}

// mask is what Ironic shows in the place of what looks like a secret, also in the middle of a text: "https://images/a?token=******".
const mask = "******"

// shows reports whether what Ironic shows of a setting can be the wanted one.
func shows(shown, wanted any) bool {
	text, _ := shown.(string)
	whole, _ := wanted.(string)
	if before, after, masked := strings.Cut(text, mask); masked {
		return len(whole) >= len(before)+len(after) && strings.HasPrefix(whole, before) && strings.HasSuffix(whole, after)
	}
	return reflect.DeepEqual(shown, wanted)
}

// masked reports whether Ironic shows some of what the node is to deploy only in part.
func (n Node) masked() bool {
	return slices.ContainsFunc(deployKeys, func(key string) bool {
		text, _ := n.Deployment[key].(string)
		return strings.Contains(text, mask)
	})
}

// manual reports whether Ironic leaves the power of the machine to its user.
func (n Node) manual() bool { return n.Driver == ManualDriver && n.PowerBy == ManualPower }

// cleans reports whether the node says, itself, whether it is cleaned between two uses.
func (n Node) cleans(wanted bool) bool { return n.Clean != nil && *n.Clean == wanted }

// Task is the next step towards a deployment, or away from one. Why is a sentence for the user: what is waited for, what failed, or why a ramdisk is started again.
type Task struct {
	Do  Move
	Ask string
	Why string
	// Reason is the word for Why out of the closed set of conditions.
	Reason string
	// User says that only the user can help, so that it is said whatever failed before.
	User bool
}

// Steps of a deployment and of its end, beside Await, Accept and Refuse.
const (
	// Enrol gives the node the driver of a machine without management controller, and leaves the power to its user.
	Enrol Move = "enrol"
	// Prepare writes to the node what to deploy.
	Prepare Move = "prepare"
	// SetCleaning sets whether the node is cleaned between two uses.
	SetCleaning Move = "set cleaning"
	// Ask asks for a change of the provision state.
	Ask Move = "ask"
	// EndMaintenance takes the node out of maintenance.
	EndMaintenance Move = "end maintenance"
	// Vacate removes the instance_info of an idle node.
	Vacate Move = "vacate"
	// Restart restarts the machine, and has Ironic forget the agent that ran on it.
	Restart Move = "restart"
)

// Past is what the next step rests on, beside the node.
type Past struct {
	// Asked is what this process asked for last.
	Asked Asked
	// Reported says that the host says already what failed, so that it is tried again.
	Reported bool
	// Silent says that the agent that took the node's token has had its time for a first heartbeat.
	Silent bool
	// Late says that the ramdisk has had its time to report, and Ironic will not say so.
	Late bool
}

// DeploymentTask says what is next for a node on which an image is to be deployed. A deployment is asked for only in a state in which none is there, and
// Ironic takes one of two requests; so whatever is forgotten or raced, an image is deployed once.
func DeploymentTask(n Node, d Deployment, p Past) Task {
	switch n.State {
	case Deploying, DeployWait:
		return d.await(n, p, metal3v1.ReasonProvisioning, "Ironic writes the image to the machine.")
	case Cleaning, CleanWait:
		return d.await(n, p, metal3v1.ReasonProvisioning, "Ironic cleans the disks of the machine before the image is written.")
	case Undeploying:
		return d.await(n, p, metal3v1.ReasonProvisioning, "Ironic ends an earlier deployment.")
	}
	switch {
	case n.Busy():
		return Task{Do: Await, Reason: metal3v1.ReasonProvisioning, Why: "Ironic works on the node."}
	case n.Instance != "" && n.Instance != d.Instance && !d.former(n):
		return refusal(metal3v1.ReasonDeploymentFailed, "the node is occupied by instance "+n.Instance+", which is not this host's")
	}
	switch n.State {
	case Active:
		if on := image(n.Deployment); on != "" && !shows(on, image(d.Info)) {
			return refusal(metal3v1.ReasonDeploymentFailed, "something else is deployed on the node: "+on)
		}
		return Task{Do: Accept}
	case DeployFailed:
		return p.again(n, metal3v1.ReasonDeploymentFailed, d.retry(n, p), AskedDeploy)
	case NodeError:
		return p.again(n, metal3v1.ReasonUndeployFailed, Task{Do: Ask, Ask: AskDelete}, AskedUndeploy)
	case CleanFailed:
		return p.again(n, metal3v1.ReasonCleaningFailed, leaveCleaning(n), AskedProvide)
	case InspectFailed, AdoptFailed:
		return Task{Do: Ask, Ask: AskManage}
	}
	return d.approach(n, p)
}

// approach leads a node that is idle to its deployment.
func (d Deployment) approach(n Node, p Past) Task {
	switch {
	case n.Maintenance && n.Fault == powerFault:
		return refusal(metal3v1.ReasonBMCUnreachable, strings.TrimRight("Ironic keeps the node in maintenance until the management controller answers again. "+n.LastError, " "))
	case n.Maintenance:
		return refusal(metal3v1.ReasonNodeRefused, "the node is in maintenance: take it out of maintenance in Ironic")
	case d.Manual && !n.manual():
		return Task{Do: Enrol}
	case d.former(n):
		return Task{Do: Vacate}
	case n.unprovided():
		return d.provide(n, p)
	case n.State == inventory.NodeAvailable:
		return d.start(n, p)
	default:
		return refusal(metal3v1.ReasonDeploymentFailed, "Ironic cannot deploy on a node that is "+n.State)
	}
}

// unprovided is true for a node that Ironic has to manage and provide before it is available.
func (n Node) unprovided() bool {
	return n.State == inventory.NodeEnroll || n.State == inventory.NodeManageable
}

// provide has Ironic make an unprovided node available, and clean its machine on the way as the host wants it.
func (d Deployment) provide(n Node, p Past) Task {
	switch {
	case n.State == inventory.NodeEnroll:
		return p.manage(n)
	case !n.cleans(d.Clean):
		return Task{Do: SetCleaning}
	default:
		return Task{Do: Ask, Ask: AskProvide}
	}
}

// manage has Ironic manage a node that is enrolled, unless the management controller did not answer when that was asked for.
func (p Past) manage(n Node) Task {
	if p.Asked == AskedManage {
		return refusal(metal3v1.ReasonBMCUnreachable, n.LastError)
	}
	return Task{Do: Ask, Ask: AskManage}
}

// start asks for the deployment once the node knows what to deploy. Values that Ironic masks, and credentials of a registry, cannot be compared, so they are written once before.
func (d Deployment) start(n Node, p Past) Task {
	if !d.prepared(n) || (n.masked() || d.Private) && p.Asked != AskedPrepare {
		return Task{Do: Prepare}
	}
	return Task{Do: Ask, Ask: AskDeploy}
}

// retry asks for a deployment that failed once more. Ironic changes driver and interfaces of a node only where nothing was deployed, so what failed is ended before.
func (d Deployment) retry(n Node, p Past) Task {
	switch {
	case !d.DeployedBy(n.Deploy) || d.Manual && !n.manual():
		return Task{Do: Ask, Ask: AskDelete}
	case d.former(n):
		return Task{Do: Vacate}
	}
	return d.start(n, p)
}

// await waits for Ironic. Where that waits for an agent of a machine that it cannot restart, only the user can help.
func (d Deployment) await(n Node, p Past, reason, why string) Task {
	switch {
	case p.Silent && n.AwaitsAgent():
		return reset(n, "The ramdisk that took the token of node "+n.UUID+" sends no heartbeat: the machine was restarted. "+
			"Asked Ironic to forget the token, so that it accepts the ramdisk that runs now; restart the machine if it still waits")
	case p.Late && !n.Locked && !d.Manual:
		return late(n)
	}
	if d.Manual && !n.Locked && (n.State == CleanWait && n.Step == "" || n.State == DeployWait && (n.Step == "" || n.Step == "deploy")) {
		return Task{Do: Await, Reason: metal3v1.ReasonAgentAway, User: true, Why: "Ironic waits for the machine to run its ramdisk, and cannot restart it. " +
			"Start or restart the machine, and let it boot the ramdisk over the network."}
	}
	return Task{Do: Await, Reason: reason, Why: why}
}

// reset has Ironic give the token of a node once more. Its agent took the token and sent no heartbeat: the machine was restarted between the two, and Ironic refuses
// the agent that runs now until its time-out. A restart by Ironic forgets the token, and so does the end of a cleaning, during which Ironic restarts no machine.
func reset(n Node, why string) Task {
	if n.State == CleanWait {
		return Task{Do: Ask, Ask: AskAbort, Why: why}
	}
	return Task{Do: Restart, Why: why}
}

// silence is what is said of a ramdisk that did not report in its time.
var silence = "timeout: the ramdisk did not report in " + strings.TrimSuffix(ramdiskTime.String(), "0s")

// late has a machine whose ramdisk is silent start the ramdisk once more, as Ironic's time-out would: a deployment goes on after the restart, and a cleaning
// fails and is tried again.
func late(n Node) Task {
	t := reset(n, "The ramdisk of node "+n.UUID+" is silent, and this Ironic would wait for it without end: it is started again. See on the console of the machine why it does not report")
	t.Reason = metal3v1.ReasonCleaningFailed
	if t.Do == Restart {
		t.Reason = metal3v1.ReasonDeploymentFailed
	}
	return t
}

// again reports a failure of what was asked for first, and then tries what mends it.
func (p Past) again(n Node, reason string, mend Task, asked ...Asked) Task {
	if slices.Contains(asked, p.Asked) || !p.Reported {
		return refusal(reason, n.LastError)
	}
	return mend
}

// leaveCleaning leads a node out of a cleaning that failed. Ironic has set its maintenance.
func leaveCleaning(n Node) Task {
	if n.Maintenance {
		return Task{Do: EndMaintenance}
	}
	return Task{Do: Ask, Ask: AskManage}
}

// Refused is the end of an attempt that Ironic did not take up.
func Refused(e Effect, why string) Task {
	switch e { //nolint:exhaustive // the others end no attempt
	case Undeploy:
		return refusal(metal3v1.ReasonUndeployFailed, why)
	case KeepDeployed:
		return refusal(metal3v1.ReasonAdoptionFailed, why)
	}
	return refusal(metal3v1.ReasonDeploymentFailed, why)
}

// refusal is the end of an attempt.
func refusal(reason, why string) Task {
	if why == "" {
		why = "Ironic does not say why"
	}
	if Refusal(why) && reason == metal3v1.ReasonBMCUnreachable {
		reason = metal3v1.ReasonBMCCredentialsRefused
	}
	return Task{Do: Refuse, Reason: reason, Why: prefixes[reason] + strings.TrimRight(why, ". ") + "."}
}

// prefixes say what failed, before what Ironic says.
var prefixes = map[string]string{
	metal3v1.ReasonDeploymentFailed: "The image was not deployed: ",
	metal3v1.ReasonCleaningFailed:   "The machine was not cleaned: ",
	metal3v1.ReasonUndeployFailed:   "The deployment was not ended: ",
	metal3v1.ReasonAdoptionFailed:   "Ironic did not adopt the machine, which stays as it is: ",
}

// RemovalTask says what is next for a node whose deployment is to end: Ironic removes it and cleans the machine. The node is idle and unoccupied when
// that is accepted.
func RemovalTask(n Node, d Deployment, p Past) Task {
	switch {
	case n.State == CleanWait, n.State == Cleaning:
		return d.await(n, p, metal3v1.ReasonDeprovisioning, "Ironic cleans the disks of the machine.")
	case n.Busy() && (n.State != DeployWait || n.Locked):
		return d.await(n, p, metal3v1.ReasonDeprovisioning, "Ironic ends the deployment.")
	}
	switch {
	case n.Deployed():
		return d.end(n, p)
	case n.State == CleanFailed:
		return p.again(n, metal3v1.ReasonCleaningFailed, leaveCleaning(n), AskedUndeploy, AskedProvide)
	case n.State == inventory.NodeManageable && p.Reported && n.cleans(true) && !d.Clean: // its user has disabled the cleaning that failed
		return Task{Do: SetCleaning}
	case n.State == inventory.NodeManageable && p.Reported && n.cleans(true): // it was led out of a cleaning that failed
		return Task{Do: Ask, Ask: AskProvide}
	case n.Instance != "" && n.Instance == d.Instance, d.former(n):
		return Task{Do: Vacate}
	case n.State == AdoptFailed: // Ironic neither inspects such a node nor deploys on it
		return Task{Do: Ask, Ask: AskManage}
	case d.Used && d.Clean && !d.Manual && n.unprovided(): // its node was made anew since it was deployed: Ironic knows of no deployment to end
		return d.provide(n, p)
	default:
		return Task{Do: Accept}
	}
}

// end asks for the end of a deployment.
func (d Deployment) end(n Node, p Past) Task {
	switch {
	case p.Asked == AskedUndeploy, n.State == NodeError && !p.Reported:
		return refusal(metal3v1.ReasonUndeployFailed, n.LastError)
	case !n.cleans(d.Clean):
		return Task{Do: SetCleaning}
	default:
		return Task{Do: Ask, Ask: AskDelete}
	}
}
