// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

const (
	// answerRetry is when Ironic is asked again for an answer that takes seconds.
	answerRetry = time.Second
	// longRetry is when Ironic is asked again for what takes minutes.
	longRetry = 10 * time.Second
	// machineRetry is when a machine is looked for again that has not reported.
	machineRetry = time.Minute
	// powerCheck is how often the power of a machine is compared with what its host says. A random fifth is added.
	powerCheck = 5 * time.Minute
	// refusedRetry is when refused credentials are tried again although the user did not change them: management controllers lock accounts.
	refusedRetry = 10 * time.Minute
	// endpointRetry is when an Ironic is asked again that did not answer.
	endpointRetry = 8 * time.Second
	// tries is how often a deletion tries what may fail for good.
	tries = 3
)

// outcome is what an effect led to.
type outcome struct {
	event hoststate.Event
	// after is when to look again, 0 for when something changes.
	after time.Duration
	// reason and message say what is waited for, or what failed.
	reason, message string
	// kind says which step failed.
	kind metal3v1.ErrorType
	// settled says that nothing is wrong any more.
	settled bool
	// blocked says that Ironic itself is what is wrong.
	blocked bool
	// written says that the host was written to, so that what was read of it is old.
	written bool
	// user says that only the user can help, so that it is said whatever failed before.
	user bool
	// parked says that the host waits for its turn at its Ironic.
	parked bool
}

func waiting(reason, message string, after time.Duration) outcome {
	return outcome{event: hoststate.Nothing, after: after, reason: reason, message: message}
}

// failed makes the outcome of something that failed, and remembers when it is due again.
func (r *Reconciler) failed(w *work, kind metal3v1.ErrorType, reason, message string) outcome {
	w.m.asked, w.m.power = hoststate.AskedNothing, ""
	w.m.failures++
	after := min(15*time.Second<<min(w.m.failures-1, 5), 5*time.Minute)
	if reason == metal3v1.ReasonBMCCredentialsRefused {
		after = refusedRetry
	}
	w.m.notBefore = r.now().Add(after)
	if reason == metal3v1.ReasonCredentialsNotFound || reason == metal3v1.ReasonBMCCredentialsRefused {
		after = secretRetry // Secrets are not watched: a new one is seen then, and tried at once
	}
	return outcome{event: hoststate.Failed, after: after, reason: reason, message: message, kind: kind}
}

// do carries an effect out. A refusal by Ironic becomes an outcome.
func (r *Reconciler) do(ctx context.Context, w *work, effect hoststate.Effect) (outcome, error) {
	out, whose := outcome{}, ""
	err := r.connect(ctx, w, effect)
	if w.p != nil && w.acts(effect) {
		whose, err = r.hold(ctx, w.p, w.host, w.node)
	}
	switch {
	case err != nil:
	case whose != "":
		out = notIts(effect, whose)
	default:
		out, err = r.effect(ctx, w, effect)
	}
	if w.p != nil {
		w.p.leave(err)
	}
	keep := w.host.Annotations[metal3v1.KeepNodeAnnotation] == "true"
	var e *inventory.EndpointError
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, errLater) && !keep:
		return outcome{event: hoststate.Nothing, after: parkedRetry, parked: true}, nil
	case keep && (effect == hoststate.Undeploy || effect == hoststate.PowerOff || effect == hoststate.DeleteNode):
		// The user has no use for the node any more, and ends a deletion that waits for an Ironic that may be gone.
		w.keepAway = true
		return outcome{event: hoststate.Done, settled: true, after: time.Millisecond}, nil
	case errors.Is(err, inventory.ErrNotFound) && w.state == hoststate.Provisioned:
		w.node = ""
		return waiting(metal3v1.ReasonNodeNotFound, "Ironic does not know the node of this machine any more. The node is made anew and adopted; what is deployed "+
			"on the machine stays as it is.", answerRetry), nil
	case errors.Is(err, inventory.ErrNotFound):
		w.node = ""
		return outcome{event: hoststate.NodeLost, after: answerRetry}, nil
	case errors.Is(err, inventory.ErrBusy):
		return waiting(metal3v1.ReasonNodeBusy, "Ironic works on the node at the moment.", busyRetry), nil
	case errors.Is(err, inventory.ErrRefused):
		return r.failed(w, kindOf(effect), metal3v1.ReasonNodeRefused, err.Error()), nil
	case errors.As(err, &e):
		out = waiting(string(e.Problem), e.Text, endpointRetry)
		out.blocked = true
		return out, nil
	default:
		return out, err
	}
}

// connect admits the host to its Ironic, if the effect needs that.
func (r *Reconciler) connect(ctx context.Context, w *work, effect hoststate.Effect) (err error) {
	switch effect { //nolint:exhaustive // the others always ask Ironic
	case hoststate.MaintainPower, hoststate.KeepDeployed:
		if !w.facts.PowerControl {
			return nil
		}
	case hoststate.Undeploy:
		if w.node == "" {
			return nil
		}
	case hoststate.PowerOff:
		if !w.facts.PowerControl || w.node == "" {
			return nil
		}
	case hoststate.FindNode:
		if w.host.Spec.BootMACAddress == "" {
			return nil
		}
	}
	w.p, err = r.visit(ctx, w.host)
	return err
}

// acts reports whether an effect acts on the node that is recorded for the host. The deletion of the node looks for itself.
func (w *work) acts(effect hoststate.Effect) bool {
	idle := (effect == hoststate.MaintainPower || effect == hoststate.KeepDeployed) && !w.facts.PowerControl
	return w.node != "" && effect != hoststate.DeleteNode && !idle
}

// notIts is the outcome for a host whose recorded node is not its own. Its deletion goes on, and leaves the node alone.
func notIts(effect hoststate.Effect, whose string) outcome {
	if effect == hoststate.Undeploy || effect == hoststate.PowerOff {
		return outcome{event: hoststate.Done, settled: true, after: time.Millisecond}
	}
	return waiting(metal3v1.ReasonMachineUsedByOther, sentence(whose), machineRetry)
}

func kindOf(effect hoststate.Effect) metal3v1.ErrorType {
	switch effect {
	case hoststate.InspectMachine, hoststate.EndInspection, hoststate.ImportHardware:
		return metal3v1.InspectionError
	case hoststate.MaintainPower, hoststate.PowerOff:
		return metal3v1.PowerManagementError
	case hoststate.Deploy, hoststate.Undeploy, hoststate.KeepDeployed:
		return metal3v1.ProvisioningError
	default:
		return metal3v1.RegistrationError
	}
}

func (r *Reconciler) effect(ctx context.Context, w *work, effect hoststate.Effect) (outcome, error) {
	switch effect {
	case hoststate.FindNode:
		return r.findNode(ctx, w)
	case hoststate.Register:
		return r.register(ctx, w)
	case hoststate.ImportHardware:
		return r.importHardware(ctx, w)
	case hoststate.InspectMachine:
		return r.inspect(ctx, w)
	case hoststate.EndInspection:
		return r.endInspection(ctx, w)
	case hoststate.MaintainPower:
		return r.maintainPower(ctx, w)
	case hoststate.Deploy:
		return r.deploy(ctx, w)
	case hoststate.KeepDeployed:
		return r.keepDeployed(ctx, w)
	case hoststate.Undeploy:
		return r.undeploy(ctx, w)
	case hoststate.PowerOff:
		return r.powerOff(ctx, w)
	case hoststate.DeleteNode:
		return r.removeNode(ctx, w)
	default:
		return outcome{}, fmt.Errorf("effect %q is not known", effect)
	}
}

// locate looks for the node of a host: by its name, and by the boot MAC. It does not trust the host's annotations.
func (w *work) locate(ctx context.Context) (string, error) {
	var macs []string
	if w.host.Spec.BootMACAddress != "" {
		macs = []string{w.host.Spec.BootMACAddress}
	}
	return w.p.Find(ctx, []string{w.nodeName()}, macs)
}

// findNode looks for the machine of a host that has no credentials; there may be none, for ever.
func (r *Reconciler) findNode(ctx context.Context, w *work) (outcome, error) {
	wait := waiting(metal3v1.ReasonWaitingForMachine, "No machine with this boot MAC has reported yet. Switch it on, or set spec.bmc.", machineRetry)
	if w.host.Spec.BootMACAddress == "" {
		return waiting(metal3v1.ReasonWaitingForMachine, "Set spec.bootMACAddress to have the machine recognised, or set spec.bmc.", 0), nil
	}
	uuid, err := w.locate(ctx)
	if errors.Is(err, inventory.ErrNotFound) {
		return wait, nil
	} else if err != nil {
		return outcome{}, err
	}
	if whose, err := r.hold(ctx, w.p, w.host, uuid); err != nil {
		return outcome{}, err
	} else if whose != "" {
		return notIts(hoststate.FindNode, whose), nil
	}
	w.node = uuid
	return outcome{event: hoststate.NodeFound, settled: true, after: time.Millisecond}, nil
}

// importHardware reads what Ironic knows of the machine. It never has the machine inspected.
func (r *Reconciler) importHardware(ctx context.Context, w *work) (outcome, error) {
	if w.node == "" {
		return outcome{event: hoststate.NodeLost, after: time.Millisecond}, nil
	}
	if _, err := w.p.Managed(ctx, w.node); err != nil {
		return outcome{}, err
	}
	out, found, err := r.take(ctx, w)
	switch {
	case err != nil || found:
		return out, err
	case w.facts.PowerControl:
		return outcome{event: hoststate.NoInspectionData, settled: true, after: time.Millisecond}, nil
	default:
		return waiting(metal3v1.ReasonWaitingForData, "Ironic has no inspection data of this machine yet; nothing triggers an inspection.",
			machineRetry/2), nil
	}
}

// take writes the hardware that Ironic knows, if it knows it, to the host.
func (r *Reconciler) take(ctx context.Context, w *work) (outcome, bool, error) {
	report, err := w.p.Report(ctx, w.node)
	if errors.Is(err, inventory.ErrNotFound) {
		return outcome{}, false, nil
	} else if err != nil {
		return outcome{}, false, err
	}
	if len(report.Cut) > 0 {
		r.Events.Eventf(w.host, nil, corev1.EventTypeWarning, metal3v1.EventHardwareCut, "Inspect",
			"The machine reported more than a host can hold. Left out: %s", strings.Join(report.Cut, ", "))
	}
	return outcome{written: true}, true, r.setHardware(ctx, w.host, &report.Hardware)
}

// powerOff switches a machine off before its host goes. A machine that cannot be switched off does not hold the deletion up.
func (r *Reconciler) powerOff(ctx context.Context, w *work) (outcome, error) {
	done := finished()
	_, detached := w.host.Annotations[metal3v1.DetachedAnnotation]
	if w.node == "" || !w.facts.PowerControl || w.good.Reference == nil || w.host.Spec.DisablePowerOff || detached {
		return done, nil
	}
	n, err := w.p.Managed(ctx, w.node)
	if err != nil {
		return outcome{}, err
	}
	if wait, err := r.leave(ctx, w, n); wait || err != nil {
		return waiting(metal3v1.ReasonPoweringOff, "The inspection is being ended.", answerRetry), err
	}
	switch {
	case n.Busy():
		return waiting(metal3v1.ReasonPoweringOff, "The machine is being switched off.", answerRetry), nil
	case n.Power == hoststate.PowerDown:
		off := false
		w.powered = &off
		return done, nil
	case w.m.power == hoststate.PowerDown && w.m.failures+1 >= tries:
		return outcome{event: hoststate.GaveUp, after: time.Millisecond}, nil
	case w.m.power == hoststate.PowerDown:
		return r.failed(w, metal3v1.PowerManagementError, metal3v1.ReasonPowerChangeFailed, n.LastError), nil
	}
	if err := w.p.SetPower(ctx, w.node, hoststate.PowerDown); err != nil {
		return outcome{}, err
	}
	w.m.power = hoststate.PowerDown
	return waiting(metal3v1.ReasonPoweringOff, "The machine is being switched off.", answerRetry), nil
}

// removeNode removes the node of a host that goes, unless it is not the host's or shall stay.
func (r *Reconciler) removeNode(ctx context.Context, w *work) (outcome, error) {
	done := outcome{event: hoststate.Done}
	if w.host.Annotations[metal3v1.KeepNodeAnnotation] == "true" {
		w.keepAway = true
		return done, nil
	}
	n, err := w.own(ctx)
	if err != nil {
		return outcome{}, err
	}
	uuid := n.UUID
	kept, err := r.claim(ctx, w.p, w.host, inventory.Node{UUID: uuid, Name: n.Name})
	if err != nil {
		return outcome{}, err
	}
	if kept == "" && (n.Instance != "" || n.Deployed()) {
		kept = "it is " + n.State + " and something occupies it"
	}
	if kept != "" {
		r.Events.Eventf(w.host, nil, corev1.EventTypeWarning, metal3v1.EventNodeKept, "Delete", "Node %s stays in Ironic: %s", uuid, kept)
		return done, nil
	}
	if wait, err := r.leave(ctx, w, n); wait || err != nil {
		return waiting(metal3v1.ReasonNodeBusy, "The inspection is being ended.", answerRetry), err
	}
	if err := w.p.DeleteNode(ctx, uuid); err != nil {
		return outcome{}, err
	}
	r.Counter.NodeDeleted()
	r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, metal3v1.EventNodeDeleted, "Delete", "Deleted node %s in Ironic", uuid)
	ctrl.LoggerFrom(ctx).Info("node deleted", "BareMetalHost", client.ObjectKeyFromObject(w.host).String(), "node", uuid)
	return done, nil
}

// own is the node that goes with a host: the recorded one, or the one that the machine came back as.
func (w *work) own(ctx context.Context) (hoststate.Node, error) {
	if w.node != "" {
		if n, err := w.p.Managed(ctx, w.node); !errors.Is(err, inventory.ErrNotFound) {
			return n, err
		}
	}
	uuid, err := w.locate(ctx)
	if err != nil {
		return hoststate.Node{}, err
	}
	return w.p.Managed(ctx, uuid)
}

func jittered(d time.Duration) time.Duration {
	return d + rand.N(d/5) //nolint:gosec // jitter is no secret
}
