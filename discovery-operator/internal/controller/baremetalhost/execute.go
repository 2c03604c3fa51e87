// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// executor does the actions of one pass over a host.
type executor struct {
	*Reconciler
	host *metal3v1.BareMetalHost
	// p is the host's Ironic, once the host is admitted to it.
	p *visit
}

// leave ends the host's admission to its Ironic, with the error that Ironic returned last.
func (e *executor) leave(err error) {
	if e.p != nil {
		e.p.leave(err)
	}
}

// execute does one action, and writes down what it led to.
func (e *executor) execute(ctx context.Context, a hoststate.Action, s *hoststate.Snapshot) (err error) {
	switch a.Call {
	case hoststate.Connect:
		e.p, err = e.visit(ctx, e.host)
		s.Seen.Connected = true
	case hoststate.Hold:
		var why string
		why, err = e.hold(ctx, e.p, e.host, a.Node)
		s.Seen.Held = maps.Clone(s.Seen.Held)
		if s.Seen.Held == nil {
			s.Seen.Held = map[string]string{}
		}
		s.Seen.Held[a.Node] = why
	case hoststate.Claim:
		var why string
		why, err = e.claim(ctx, e.p, e.host, inventory.Node{UUID: a.Known.UUID, Name: a.Known.Name, BMC: a.Known.BMC()})
		s.Seen.Claimed = &why
	case hoststate.CheckTaken:
		var whose string
		whose, err = e.taken(ctx, e.host)
		s.Seen.Taken = &whose
	case hoststate.Find:
		var uuid string
		uuid, err = e.find(ctx)
		s.Seen.Found = &uuid
	case hoststate.ReadNode:
		s.Seen.Node = &hoststate.Node{}
		*s.Seen.Node, err = e.p.Managed(ctx, a.Node)
	case hoststate.ExamineNode:
		s.Seen.Node = &hoststate.Node{}
		*s.Seen.Node, err = e.p.Examined(ctx, a.Node)
	case hoststate.ReadReport:
		s.Seen.Report, err = e.p.Report(ctx, a.Node)
		s.Seen.Reported = true
		if errors.Is(err, inventory.ErrNotFound) {
			s.Seen.Report, err = nil, nil
		}
	case hoststate.ReadConfig:
		var config osimage.ConfigDrive
		config, err = configDrive(ctx, e.Live, e.host)
		s.Seen.Config = &config
	case hoststate.ConfirmHost:
		err = e.unchanged(ctx, e.host)
		s.Seen.Unchanged = true
	case hoststate.EnrolNode:
		if a.Access.Machine, err = e.machine(ctx, ""); err != nil {
			return err
		}
		if s.NodeID, err = e.p.EnrolNode(ctx, hoststate.NodeName(e.host), a.Access); err == nil {
			e.Recorder.Eventf(e.host, nil, corev1.EventTypeNormal, "NodeEnrolled", "Register", "Made node %s in Ironic", s.NodeID)
		}
	default:
		return e.change(ctx, a, s)
	}
	return err
}

// change does an action that changes something, in Ironic or the host.
func (e *executor) change(ctx context.Context, a hoststate.Action, s *hoststate.Snapshot) (err error) {
	var machine hoststate.Machine
	switch a.Call { //nolint:exhaustive // the others do not describe the machine
	case hoststate.WriteNode, hoststate.StartInspection, hoststate.PrepareNode:
		if machine, err = e.machine(ctx, a.Known.State); err != nil {
			return err
		}
		a.Access.Machine, a.Deployment.Machine = machine, machine
	}
	switch a.Call {
	case hoststate.WriteNode:
		return e.p.Write(ctx, a.Known, hoststate.NodeName(e.host), a.Access)
	case hoststate.EnsurePort:
		return e.p.EnsurePort(ctx, a.Node, e.host.Spec.BootMACAddress)
	case hoststate.SetProvision:
		return e.p.SetProvision(ctx, a.Node, a.Target)
	case hoststate.SetPower:
		return e.p.SetPower(ctx, a.Node, a.Target)
	case hoststate.StartInspection:
		return e.p.Inspect(ctx, a.Known, e.host.Spec.InspectionMode, machine)
	case hoststate.PrepareNode:
		if a.Deployment.Private {
			if a.Deployment, err = e.private(ctx, a.Deployment); err != nil {
				return err
			}
		}
		return e.p.Prepare(ctx, a.Known, a.Deployment)
	case hoststate.SetNodeCleaning:
		return e.p.SetCleaning(ctx, a.Node, a.Deployment.Clean)
	case hoststate.VacateNode:
		return e.p.Vacate(ctx, a.Node)
	case hoststate.EnterMaintenance:
		return e.p.BeginMaintenance(ctx, a.Node)
	case hoststate.LeaveMaintenance:
		return e.p.EndMaintenance(ctx, a.Node)
	case hoststate.StartDeployment:
		return e.p.Deploy(ctx, a.Node, *s.Seen.Config)
	case hoststate.RemoveNode:
		return e.removeNode(ctx, a.Node)
	case hoststate.SetHardware:
		return e.setHardware(ctx, e.host, &s.Seen.Report.Hardware)
	case hoststate.RemoveInspectRequest:
		return e.unset(ctx, metal3v1.InspectAnnotation, client.MergeFrom(e.host))
	case hoststate.RemoveRebootRequest:
		return e.unset(ctx, metal3v1.RebootAnnotation, client.MergeFromWithOptions(e.host, client.MergeFromWithOptimisticLock{}))
	default:
		return fmt.Errorf("action %q is not known", a.Call)
	}
}

// find looks for the node of a host: by its name, and by the boot MAC. The host's annotations are not believed.
func (e *executor) find(ctx context.Context) (string, error) {
	var macs []string
	if e.host.Spec.BootMACAddress != "" {
		macs = []string{e.host.Spec.BootMACAddress}
	}
	uuid, err := e.p.Find(ctx, []string{hoststate.NodeName(e.host)}, macs)
	if errors.Is(err, inventory.ErrNotFound) {
		return "", nil
	}
	return uuid, err
}

func (e *executor) removeNode(ctx context.Context, uuid string) error {
	if err := e.p.DeleteNode(ctx, uuid); err != nil {
		return err
	}
	e.Counter.NodeDeleted()
	ctrl.LoggerFrom(ctx).Info("node deleted", "BareMetalHost", client.ObjectKeyFromObject(e.host).String(), "node", uuid)
	return nil
}

// unset removes an annotation whose request is done.
func (e *executor) unset(ctx context.Context, annotation string, patch client.Patch) error {
	next := e.host.DeepCopy()
	delete(next.Annotations, annotation)
	err := e.Client.Patch(ctx, next, patch, client.FieldOwner(FieldOwner))
	return outcome.IgnoreGone(wrap(err, "removing the annotation %s of host %s", annotation, client.ObjectKeyFromObject(e.host)))
}
