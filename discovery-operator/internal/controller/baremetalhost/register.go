// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// moves bounds the steps of a registration in one pass.
const moves = 4

// register gives the node of a host the driver and the credentials, and has the management controller verify them. A node that exists is
// updated; only where there is none, one is made.
func (r *Reconciler) register(ctx context.Context, w *work) (outcome, error) {
	fail := func(reason, message string) (outcome, error) {
		return r.failed(w, metal3v1.RegistrationError, reason, message), nil
	}
	name := w.host.Spec.BMC.CredentialsName
	if w.secret == nil {
		return fail(metal3v1.ReasonCredentialsNotFound, fmt.Sprintf("There is no Secret %s in this namespace.", name))
	}
	username, password := string(w.secret.Data["username"]), string(w.secret.Data["password"])
	if username == "" || password == "" {
		return fail(metal3v1.ReasonCredentialsNotFound, fmt.Sprintf("The Secret %s lacks username or password.", name))
	}
	access, err := hoststate.AccessTo(*w.host.Spec.BMC, username, password)
	if err != nil {
		return fail(metal3v1.ReasonBMCUnsupported, err.Error()+".")
	}
	if whose, err := r.node(ctx, w, access); err != nil {
		return outcome{}, err
	} else if whose != "" {
		return fail(metal3v1.ReasonMachineUsedByOther, sentence(whose))
	}
	for range moves {
		n, err := w.p.Managed(ctx, w.node)
		if err != nil {
			return outcome{}, err
		}
		switch hoststate.Registration(n, w.m.asked) { //nolint:exhaustive // the others belong to a deployment
		case hoststate.Write:
			if whose, err := r.claim(ctx, w.p, w.host, inventory.Node{UUID: n.UUID, Name: n.Name}); err != nil {
				return outcome{}, err
			} else if whose != "" {
				w.node = w.host.Status.Provisioning.ID
				return fail(metal3v1.ReasonMachineUsedByOther, sentence(whose))
			}
			err = r.write(ctx, w, n, access)
		case hoststate.Manage:
			err = w.p.SetProvision(ctx, w.node, "manage")
			w.m.asked = hoststate.AskedManage
		case hoststate.CheckPower:
			err = w.p.SetPower(ctx, w.node, presentPower(n, w.host))
			w.m.asked = hoststate.AskedPower
		case hoststate.Accept:
			return r.accepted(w, n), nil
		case hoststate.Refuse:
			reason := metal3v1.ReasonBMCUnreachable
			if hoststate.Refusal(n.LastError) {
				reason = metal3v1.ReasonBMCCredentialsRefused
			}
			return fail(reason, strings.ReplaceAll(n.LastError, password, "******"))
		case hoststate.Await, hoststate.Inspect: // the latter is never said of a registration
			return verifying(n), nil
		}
		if err != nil {
			w.m.asked = hoststate.AskedNothing
			return outcome{}, err
		}
	}
	return verifying(hoststate.Node{}), nil
}

// verifying waits for Ironic to ask the management controller.
func verifying(n hoststate.Node) outcome {
	if n.State == hoststate.InspectWait {
		return waiting(metal3v1.ReasonInspecting, "The machine is being inspected; the credentials are verified afterwards.", longRetry)
	}
	return waiting(metal3v1.ReasonVerifyingAccess, "Ironic asks the management controller.", answerRetry)
}

// node finds the node of a host, or makes it, unless another host has reserved the boot MAC: Ironic would take the machine of that one for
// this one's. A process that dies after that finds the node by its name.
func (r *Reconciler) node(ctx context.Context, w *work, access hoststate.Access) (whose string, err error) {
	if w.node != "" {
		return "", nil
	}
	uuid, err := w.locate(ctx)
	if errors.Is(err, inventory.ErrNotFound) {
		if whose, err := r.taken(ctx, w.host); whose != "" || err != nil {
			return whose, err
		}
		if uuid, err = w.p.EnrolNode(ctx, w.nodeName(), access); err == nil {
			r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, "NodeEnrolled", "Register", "Made node %s in Ironic", uuid)
		}
		w.node = uuid
		return "", err
	}
	w.node = uuid
	return "", err
}

func (r *Reconciler) write(ctx context.Context, w *work, n hoststate.Node, access hoststate.Access) error {
	if err := w.p.Write(ctx, n, w.nodeName(), access); err != nil {
		return err
	}
	w.m.asked = hoststate.AskedWrite
	if w.host.Spec.BootMACAddress == "" {
		return nil
	}
	return w.p.EnsurePort(ctx, w.node, w.host.Spec.BootMACAddress)
}

// presentPower is what the power is already, so that asking for it switches nothing.
func presentPower(n hoststate.Node, h *metal3v1.BareMetalHost) string {
	switch {
	case n.Power != "":
		return n.Power
	case h.Spec.Online:
		return hoststate.PowerOn
	default:
		return hoststate.PowerDown
	}
}

// accepted records that the management controller has accepted the credentials.
func (r *Reconciler) accepted(w *work, n hoststate.Node) outcome {
	on := n.Power == hoststate.PowerOn
	w.powered, w.m.asked = &on, hoststate.AskedNothing
	w.good = metal3v1.CredentialsStatus{
		Reference: &corev1.SecretReference{Namespace: w.host.Namespace, Name: w.host.Spec.BMC.CredentialsName}, Version: w.secret.ResourceVersion,
	}
	r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, "BMCAccessValidated", "Register",
		"The management controller has accepted the credentials; node %s has driver %s", w.node, n.Driver)
	return outcome{event: hoststate.AfterVerification(w.facts), settled: true, after: time.Millisecond}
}

// maintainPower makes the power of a machine what its host says. Without power control it does nothing at all.
func (r *Reconciler) maintainPower(ctx context.Context, w *work) (outcome, error) {
	if !w.facts.PowerControl {
		return outcome{event: hoststate.Nothing, settled: true}, nil
	}
	n, err := w.p.Managed(ctx, w.node)
	if err != nil {
		return outcome{}, err
	}
	return r.power(ctx, w, n)
}

// power makes the power of a machine with a node what its host says.
func (r *Reconciler) power(ctx context.Context, w *work, n hoststate.Node) (outcome, error) {
	if stale := w.stale(n); stale {
		w.good = metal3v1.CredentialsStatus{}
		return outcome{event: hoststate.CredentialsArrived, after: time.Millisecond}, nil
	}
	if n.Power != "" {
		on := n.Power == hoststate.PowerOn
		w.powered = &on
	}
	wish := hoststate.WishOf(w.host)
	step := hoststate.Power(n, wish, w.m.power)
	reason, message := metal3v1.ReasonPoweringOn, "The machine is being switched on."
	if step.Ask != hoststate.PowerOn && w.m.power != hoststate.PowerOn {
		reason, message = metal3v1.ReasonPoweringOff, "The machine is being switched off."
	}
	switch {
	case step.Wait:
		return waiting(reason, message, answerRetry), nil
	case step.Failed:
		kind, why := metal3v1.PowerManagementError, metal3v1.ReasonPowerChangeFailed
		if hoststate.Refusal(n.LastError) {
			why = metal3v1.ReasonBMCCredentialsRefused
		}
		return r.failed(w, kind, why, n.LastError), nil
	case step.Ask != "":
		if err := w.p.SetPower(ctx, w.node, step.Ask); err != nil {
			return outcome{}, err
		}
		w.m.power = step.Ask
		r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, "PowerRequested", "Power", "Asked Ironic for %s", step.Ask)
		if !step.Rebooted {
			return waiting(reason, message, answerRetry), nil
		}
	}
	if step.Rebooted {
		return outcome{written: true}, r.rebooted(ctx, w.host)
	}
	w.m.power = ""
	return outcome{event: hoststate.Nothing, settled: true, after: jittered(powerCheck)}, nil
}

// stale reports whether the node does not have the driver and address that the host names.
func (w *work) stale(n hoststate.Node) bool {
	if w.secret == nil {
		return false
	}
	access, err := hoststate.AccessTo(*w.host.Spec.BMC, string(w.secret.Data["username"]), "")
	return err == nil && !access.Matches(n)
}

// rebooted removes the reboot annotation without a key: what it asked for is done.
func (r *Reconciler) rebooted(ctx context.Context, host *metal3v1.BareMetalHost) error {
	next := host.DeepCopy()
	delete(next.Annotations, metal3v1.RebootAnnotation)
	patch := client.MergeFromWithOptions(host, client.MergeFromWithOptimisticLock{})
	err := r.Client.Patch(ctx, next, patch, client.FieldOwner(FieldOwner))
	return client.IgnoreNotFound(wrap(err, "removing the reboot annotation of host %s", client.ObjectKeyFromObject(host)))
}
