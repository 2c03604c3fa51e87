// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// errNameTaken says that a host of the name exists for another machine.
var errNameTaken = errors.New("the name of the host is taken")

// create makes the host of a machine: first the reservation, then the host, held, then its status. Each step succeeds again, so a
// process that dies in between is continued by the next pass.
func (r *Reconciler) create(ctx context.Context, o *observation, c inventory.CreateHost) error {
	if err := r.reserve(ctx, o.discovery, c); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, reservation.Time/2)
	defer cancel()
	host, err := r.newHost(o.discovery, c)
	if err != nil {
		return err
	}
	err = r.Client.Create(within, host, client.FieldOwner(FieldOwner))
	switch {
	case apierrors.IsAlreadyExists(err):
		if host, err = r.existing(within, o.discovery, c); err != nil {
			return errors.Join(err, r.unreserve(within, o.discovery, c, err))
		}
	case err != nil:
		return fmt.Errorf("creating host %s: %w", c.Host, err)
	default:
		o.memory.limiter.AllowN(r.now(), 1)
		r.Counter.Created()
	}
	if err := r.writeStatus(ctx, c.Host, string(host.UID), c.Node, c.Report, handover.First(c.Manual)); err != nil {
		return err
	}
	r.announce(ctx, o, host, c)
	return nil
}

// newHost is the host of a machine. It has no BMC, and is paused until a user gives it one.
func (r *Reconciler) newHost(d *metal3v1.BareMetalHostDiscovery, c inventory.CreateHost) (*metal3v1.BareMetalHost, error) {
	labels := maps.Clone(c.Labels)
	labels[metal3v1.DiscoveredByLabel] = d.Name
	annotations := maps.Clone(c.Annotations)
	annotations[metal3v1.PausedAnnotation] = metal3v1.DiscoveryPausedValue
	annotations[metal3v1.NodeAnnotation] = c.Node
	annotations[metal3v1.LastSeenAnnotation] = r.lastSeen(c.Machine.Node.Inspected)
	annotations[metal3v1.NameDetailAnnotation] = string(c.Detail)
	annotations[metal3v1.BootMACRuleAnnotation] = string(c.BootRule)
	if c.Report.BMCAddress != "" {
		annotations[metal3v1.BMCAnnotation] = c.Report.BMCAddress
	}
	// A host that has no status yet, because its process died, must be known by its serial number, too.
	if serial := inventory.NormalSerial(c.Report.Hardware.SystemVendor.SerialNumber); serial != "" {
		annotations[metal3v1.SerialAnnotation] = serial
	}
	if len(c.Report.Cut) > 0 {
		annotations[metal3v1.CutAnnotation] = strings.Join(c.Report.Cut, ", ")
	}
	switch {
	case c.Manual:
		labels[metal3v1.ApprovalLabel] = "pending"
	case c.Ruled:
		labels[metal3v1.ApprovalLabel] = "approved"
	}
	if d.Spec.NodeDeletion == metal3v1.NodeDeletionKeep {
		annotations[metal3v1.KeepNodeAnnotation] = "true"
	}
	endpoint, err := referenceOf(d)
	if err != nil {
		return nil, err
	}
	if endpoint != "" {
		annotations[metal3v1.IronicAnnotation] = endpoint
	}
	return &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Host.Namespace, Name: c.Host.Name, Labels: labels, Annotations: annotations,
			Finalizers: []string{metal3v1.DiscoveryFinalizer},
		},
		Spec: newSpec(&d.Spec.HostTemplate, c),
	}, nil
}

// newSpec is what the template says of a host, and what the machine said of itself.
func newSpec(t *metal3v1.HostTemplate, c inventory.CreateHost) metal3v1.BareMetalHostSpec {
	spec := metal3v1.BareMetalHostSpec{
		BootMACAddress: c.BootMAC, Online: t.Online == nil || *t.Online, Architecture: c.Report.Hardware.CPU.Arch,
		AutomatedCleaningMode: cmp.Or(t.AutomatedCleaningMode, "metadata"), BootMode: t.BootMode, RootDeviceHints: t.RootDeviceHints.DeepCopy(),
		ExternallyProvisioned: t.ExternallyProvisioned, Taints: slices.Clone(t.Taints),
	}
	if c.BMCAddress != "" {
		spec.BMC = &metal3v1.BMCDetails{
			Address: c.BMCAddress, CredentialsName: c.BMCSecret, DisableCertificateVerification: t.BMC.DisableCertificateVerification,
		}
	}
	return spec
}

// existing looks at the host that has the name already: it may be the one that an earlier pass made for the same machine.
func (r *Reconciler) existing(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, c inventory.CreateHost) (*metal3v1.BareMetalHost, error) {
	var host metal3v1.BareMetalHost
	if err := r.Live.Get(ctx, types.NamespacedName(c.Host), &host); err != nil {
		return nil, fmt.Errorf("reading host %s: %w", c.Host, err)
	}
	ours := host.Labels[metal3v1.DiscoveredByLabel] == d.Name && strings.EqualFold(host.Spec.BootMACAddress, c.BootMAC) &&
		host.Annotations[metal3v1.PausedAnnotation] == metal3v1.DiscoveryPausedValue && host.DeletionTimestamp == nil
	if !ours {
		return nil, fmt.Errorf("%w: %s exists", errNameTaken, c.Host)
	}
	return &host, nil
}

// complete writes the status of a host that an earlier pass made, or whose machine has a new node.
func (r *Reconciler) complete(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, a inventory.WriteStatus) error {
	if err := r.renew(ctx, d, a); err != nil {
		return err
	}
	if err := r.writeStatus(ctx, a.Host, a.UID, a.Node, a.Report, handover.First(a.Manual)); err != nil {
		return err
	}
	if a.Replaced != "" || a.Again {
		if err := r.writeHardware(ctx, a.Host, a.UID, &a.Report.Hardware); err != nil && !meta.IsNoMatchError(err) {
			return err
		}
		if err := r.renewed(ctx, a); err != nil {
			return err
		}
	}
	ctrl.LoggerFrom(ctx).Info("host completed", "BareMetalHost", a.Host.String(), "node", a.Node, "replacedNode", a.Replaced)
	if a.Replaced != "" {
		host := &metal3v1.BareMetalHost{}
		host.Namespace, host.Name, host.UID = a.Host.Namespace, a.Host.Name, types.UID(a.UID)
		r.Recorder.Eventf(host, nil, corev1.EventTypeNormal, metal3v1.EventNodeReplaced, "Discover",
			"The node %s is gone and the machine came back as node %s", a.Replaced, a.Node)
	} else if a.Again {
		host := &metal3v1.BareMetalHost{}
		host.Namespace, host.Name, host.UID = a.Host.Namespace, a.Host.Name, types.UID(a.UID)
		r.Recorder.Eventf(host, nil, corev1.EventTypeNormal, metal3v1.EventHardwareUpdated, "Discover",
			"The machine was inspected again; the host has the hardware that it reported")
	}
	return nil
}

// lastSeen is when a machine last reported: when its last inspection ended, or now, because reports of machines that are discovered are read at once.
func (r *Reconciler) lastSeen(inspected string) string {
	return cmp.Or(inspected, r.now().UTC().Format(time.RFC3339))
}

// renewed notes on a host that its machine has reported again, and as which node. It comes last, so that a process that dies before does all of it again.
func (r *Reconciler) renewed(ctx context.Context, a inventory.WriteStatus) error {
	annotations := map[string]any{metal3v1.LastSeenAnnotation: r.lastSeen(a.Inspected), metal3v1.NodeAnnotation: a.Node}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": a.UID, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("renewing host %s: %w", a.Host, err)
	}
	host := &metal3v1.BareMetalHost{}
	host.Namespace, host.Name = a.Host.Namespace, a.Host.Name
	err = r.Client.Patch(ctx, host, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldOwner))
	return wrap(err, "renewing host %s", a.Host)
}

// tellLost writes on a host whether Ironic knows its node.
func (r *Reconciler) tellLost(ctx context.Context, a inventory.TellLost) error {
	status := metal3v1ac.BareMetalHostStatus()
	if a.Lost {
		status.WithConditions(metav1ac.Condition().WithType(metal3v1.ConditionNodePresent).WithStatus(metav1.ConditionFalse).
			WithReason(metal3v1.ReasonNodeGone).WithLastTransitionTime(metav1.NewTime(r.now())).WithMessage(fmt.Sprintf(
			"Ironic does not know node %s any more. The host stays, and gets the new node when the machine reports again. Delete the host if the machine is gone.", a.Node)))
	}
	object := metal3v1ac.BareMetalHost(a.Host.Name, a.Host.Namespace).WithUID(types.UID(a.UID)).WithStatus(status)
	err := r.Client.SubResource("status").Apply(ctx, object, client.FieldOwner(FieldOwner+"/node"), client.ForceOwnership)
	if err != nil {
		return outcome.IgnoreGone(wrap(err, "writing the condition of host %s", a.Host))
	}
	if a.Lost {
		host := &metal3v1.BareMetalHost{}
		host.Namespace, host.Name, host.UID = a.Host.Namespace, a.Host.Name, types.UID(a.UID)
		r.Recorder.Eventf(host, nil, corev1.EventTypeWarning, metal3v1.ReasonNodeGone, "Discover", "Ironic does not know node %s any more", a.Node)
	}
	return nil
}

// hostStatus applies a status as it is written. The status in the answer is not read: with 10,000 machines at once that is much of a pass.
type hostStatus struct {
	*metal3v1ac.BareMetalHostApplyConfiguration
	Status json.RawMessage `json:"status"`
}

// writeStatus gives a host the form of status that other operators accept: they know the node and have the hardware, so that
// they need not inspect the machine again.
func (r *Reconciler) writeStatus(ctx context.Context, host inventory.Ref, uid, node string, report *inventory.Report, first handover.Wait) error {
	now := metav1.NewTime(r.now())
	status := metal3v1.BareMetalHostStatus{
		OperationalStatus: metal3v1.OperationalStatusDiscovered,
		LastUpdated:       &now,
		HardwareDetails:   &report.Hardware,
		Provisioning: metal3v1.ProvisionStatus{
			State: metal3v1.StateUnmanaged, ID: node, Image: &metal3v1.Image{URL: ""},
		},
		Conditions: []metav1.Condition{{
			Type: metal3v1.ConditionHandedOver, Status: metav1.ConditionFalse, Reason: first.Reason, Message: first.Message,
			LastTransitionTime: now,
		}},
	}
	data, err := json.Marshal(struct {
		metal3v1.BareMetalHostStatus
		HardwareProfile string `json:"hardwareProfile"` // definitions of former baremetal operators require it
	}{BareMetalHostStatus: status})
	if err != nil {
		return fmt.Errorf("writing the status of host %s: %w", host, err)
	}
	object := &hostStatus{metal3v1ac.BareMetalHost(host.Name, host.Namespace).WithUID(types.UID(uid)), data}
	err = r.Client.SubResource("status").Apply(ctx, object, client.FieldOwner(FieldOwner), client.ForceOwnership)
	return wrap(err, "writing the status of host %s", host)
}

// fewHosts is how many hosts of one pass get an event each. More than these get one together, on the resource: a rack that is switched on
// would cost a third more writes, and users do not read a thousand events.
const fewHosts = 20

// announce says what happened where users look.
func (r *Reconciler) announce(ctx context.Context, o *observation, host *metal3v1.BareMetalHost, c inventory.CreateHost) {
	d := o.discovery
	if o.creations <= fewHosts {
		r.Recorder.Eventf(host, d, corev1.EventTypeNormal, metal3v1.EventHostDiscovered, "Discover",
			"Discovered as node %s; boot MAC %s (%s)", c.Node, c.BootMAC, c.BootRule)
	}
	o.created.Add(1)
	if len(c.Report.Cut) > 0 {
		r.Recorder.Eventf(host, d, corev1.EventTypeWarning, metal3v1.EventHardwareCut, "Discover",
			"The machine reported more than a host can hold. Left out: %s", host.Annotations[metal3v1.CutAnnotation])
	}
	if c.Ruled {
		r.ruled(d, host)
	}
	if c.FellBack {
		r.Recorder.Eventf(host, d, corev1.EventTypeWarning, metal3v1.EventNameFellBack, "Discover",
			"The machine has no usable %s; its %s names the host", d.Spec.ResourceNameTemplate.HardwareDetails, c.Detail)
	}
	ctrl.LoggerFrom(ctx).Info("host created", "BareMetalHost", c.Host.String(), "node", c.Node, "bootMAC", c.BootMAC,
		"nameFrom", string(c.Detail), "bootMACFrom", string(c.BootRule))
}
