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
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/truncate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// maxMachines is how many machines a status explains one by one.
const maxMachines = 32

// report writes the status of the resource, if it changed, and publishes events of machines that are refused for a new reason.
func (r *Reconciler) report(ctx context.Context, o *observation, d inventory.Decision) error {
	if o.view != nil && o.unread() && o.reported() { // after a restart, until Ironic was read, what was written before is the best that is known
		return nil
	}
	r.tell(ctx, o, d)
	status := statusOf(o, d)
	if equality.Semantic.DeepEqual(status, o.discovery.Status) {
		return nil
	}
	data, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	applied := metal3v1ac.BareMetalHostDiscoveryStatus()
	if err := json.Unmarshal(data, applied); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	object := metal3v1ac.BareMetalHostDiscovery(o.discovery.Name, o.discovery.Namespace).WithUID(o.discovery.UID).WithStatus(applied)
	err = r.Client.SubResource("status").Apply(ctx, object, client.FieldOwner(FieldOwner), client.ForceOwnership)
	return outcome.IgnoreGone(wrap(err, "writing the status"))
}

// unread reports whether too little was read to act on. A resource that had no status before begins with the first page of its Ironic.
func (o *observation) unread() bool {
	return !o.health.Polled || o.health.Partial && !o.memory.fresh
}

// reported reports whether the status is of the present spec and endpoint.
func (o *observation) reported() bool {
	s := &o.discovery.Status
	return s.ObservedGeneration == o.discovery.Generation && s.Endpoint == o.endpoint
}

// tell publishes an event for each machine that was not refused for this reason before. The status holds what an earlier process reported, by machine
// as far as it has room, and in numbers.
func (r *Reconciler) tell(ctx context.Context, o *observation, d inventory.Decision) {
	if m := o.memory; m.before == nil {
		m.before = map[string]int32{}
		for _, c := range o.discovery.Status.Reasons {
			m.before[c.Reason] = c.Count
		}
		for _, reported := range o.discovery.Status.Machines {
			m.refused[reported.Node] = reported.Reason
		}
	}
	earlier := maps.Clone(o.memory.before)
	present := make(map[string]string, len(o.memory.refused))
	for _, v := range d.Verdicts {
		if v.Waiting {
			continue
		}
		present[v.Node] = v.Reason
		if earlier[v.Reason]--; earlier[v.Reason] >= 0 || o.memory.refused[v.Node] == v.Reason {
			continue
		}
		r.Counter.Refused()
		r.Recorder.Eventf(o.discovery, nil, corev1.EventTypeWarning, v.Reason, "Refuse", "Node %s: %s", v.Node, v.Message)
		ctrl.LoggerFrom(ctx).Info("machine refused", "node", v.Node, "reason", v.Reason, "message", v.Message)
	}
	o.memory.refused = present
	if len(o.snapshot.Machines) > 0 && int(d.Counts.Read) == len(o.snapshot.Machines) && !o.snapshot.Partial {
		clear(o.memory.before)
	}
}

// statusOf is the status that follows from a pass. It is the old one where nothing changed.
func statusOf(o *observation, d inventory.Decision) metal3v1.BareMetalHostDiscoveryStatus {
	old := o.discovery.Status
	status := metal3v1.BareMetalHostDiscoveryStatus{
		ObservedGeneration: o.discovery.Generation, Endpoint: o.endpoint, APIVersion: o.health.Version, Counts: d.Counts,
		LastPoll: old.LastPoll, Conditions: slices.Clone(old.Conditions),
	}
	if o.health.Version == "" {
		status.APIVersion = old.APIVersion
	}
	if !o.health.Changed.IsZero() {
		status.LastPoll = &metal3v1.PollReport{
			Time: metav1.NewTime(o.health.Changed.Truncate(1e9)), Full: o.health.Full,
			Requests: int32(o.health.Requests), //nolint:gosec // a reading has fewer requests than 2^31
		}
	}
	counts := map[string]int32{}
	for _, v := range d.Verdicts {
		counts[v.Reason]++
		if len(status.Machines) < maxMachines {
			status.Machines = append(status.Machines, metal3v1.MachineReport{
				Node: v.Node, BootMAC: v.BootMAC, Name: v.Name, Reason: v.Reason, Message: truncate.To(v.Message, 512),
			})
		}
	}
	for reason, n := range counts {
		status.Reasons = append(status.Reasons, metal3v1.ReasonCount{Reason: reason, Count: n})
	}
	slices.SortFunc(status.Reasons, func(a, b metal3v1.ReasonCount) int { return strings.Compare(a.Reason, b.Reason) })
	conditions(&status, o, d)
	return status
}

// conditions explains how things are.
func conditions(status *metal3v1.BareMetalHostDiscoveryStatus, o *observation, d inventory.Decision) {
	generation := o.discovery.Generation
	set := func(kind string, ok metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: ok, Reason: reason, Message: truncate.To(message, 1024), ObservedGeneration: generation,
		})
	}
	endpoint, reason, message := endpointOf(o)
	set(metal3v1.ConditionEndpointReady, endpoint, reason, message)
	broken, why := "", ""
	if o.self.Broken != "" {
		broken, why = metal3v1.ReasonTemplateInvalid, o.self.Broken
		if strings.HasPrefix(why, errSelector.Error()) {
			broken = metal3v1.ReasonSelectorInvalid
		}
		set(metal3v1.ConditionStalled, metav1.ConditionTrue, broken, why)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, metal3v1.ConditionStalled)
	}
	evaluated(status, o, d, set)
	switch {
	case broken != "":
		set(metal3v1.ConditionReady, metav1.ConditionFalse, broken, why)
	case endpoint != metav1.ConditionTrue:
		set(metal3v1.ConditionReady, endpoint, reason, message)
	case d.MassLoss():
		set(metal3v1.ConditionReady, metav1.ConditionFalse, metal3v1.ReasonNodesDisappeared, fmt.Sprintf(
			"Ironic does not know the nodes of %d of %s: another Ironic, or another database? Hosts are left as they are.",
			d.LostHosts, count(d.Counts.Hosts, "host", "hosts")))
	case o.discovery.Spec.Paused:
		set(metal3v1.ConditionReady, metav1.ConditionFalse, metal3v1.ReasonPaused, "spec.paused is true: "+summary(status))
	case d.Counts.Refused > 0:
		set(metal3v1.ConditionReady, metav1.ConditionTrue, metal3v1.ReasonMachinesRefused, summary(status))
	case d.Counts.Waiting > 0:
		set(metal3v1.ConditionReady, metav1.ConditionTrue, metal3v1.ReasonMachinesWaiting, summary(status))
	default:
		set(metal3v1.ConditionReady, metav1.ConditionTrue, metal3v1.ReasonDiscovering, summary(status))
	}
}

// evaluated says whether the selector could be evaluated.
func evaluated(status *metal3v1.BareMetalHostDiscoveryStatus, o *observation, d inventory.Decision,
	set func(kind string, holds metav1.ConditionStatus, reason, message string),
) {
	switch {
	case o.discovery.Spec.Selector == "" || o.self.Broken != "":
		meta.RemoveStatusCondition(&status.Conditions, metal3v1.ConditionSelectorEvaluated)
	case d.Unevaluated > 0:
		set(metal3v1.ConditionSelectorEvaluated, metav1.ConditionFalse, metal3v1.ReasonEvaluationFailure, fmt.Sprintf(
			"The selector fails on %s, which it does not take; the first is node %s: %s",
			count(int32(min(d.Unevaluated, math.MaxInt32)), "machine", "machines"), d.UnevaluatedNode, inventory.Sentence(d.UnevaluatedWhy)))
	default:
		set(metal3v1.ConditionSelectorEvaluated, metav1.ConditionTrue, metal3v1.ReasonEvaluated, "The selector is evaluated on each machine.")
	}
}

// endpointOf says whether Ironic can be read, in the words of a condition.
func endpointOf(o *observation) (ok metav1.ConditionStatus, reason, message string) {
	var e *inventory.EndpointError
	switch {
	case !o.health.Polled:
		return metav1.ConditionUnknown, metal3v1.ReasonNotPolledYet, "Ironic has not been read yet."
	case o.health.Err == nil:
		return metav1.ConditionTrue, metal3v1.ReasonReachable, "Ironic answers."
	case errors.As(o.health.Err, &e):
		return metav1.ConditionFalse, cmp.Or(known[e.Problem], metal3v1.ReasonAnswerInvalid), e.Text
	default:
		return metav1.ConditionFalse, metal3v1.ReasonEndpointUnreachable, o.health.Err.Error()
	}
}

var known = map[inventory.Problem]string{
	inventory.ProblemUnreachable: metal3v1.ReasonEndpointUnreachable,
	inventory.ProblemTimedOut:    metal3v1.ReasonEndpointTimedOut,
	inventory.ProblemCredentials: metal3v1.ReasonCredentialsRefused,
	inventory.ProblemNoSecret:    metal3v1.ReasonCredentialsMissing,
	inventory.ProblemTooOld:      metal3v1.ReasonAPITooOld,
	inventory.ProblemNoEndpoint:  metal3v1.ReasonEndpointMissing,
	inventory.ProblemNotShared:   metal3v1.ReasonEndpointNotShared,
}

// summary counts what there is: "3 hosts made, 2 machines wait, 1 machine is refused (DuplicateSerial 1, WaitingForInventory 2)."
func summary(status *metal3v1.BareMetalHostDiscoveryStatus) string {
	c := status.Counts
	text := fmt.Sprintf("%s made, %s, %s", count(c.Hosts, "host", "hosts"), count(c.Waiting, "machine waits", "machines wait"),
		count(c.Refused, "machine is refused", "machines are refused"))
	if c.Lost > 0 {
		text += ", " + count(c.Lost, "host has lost its node", "hosts have lost their nodes")
	}
	parts := make([]string, 0, len(status.Reasons))
	for _, r := range status.Reasons {
		parts = append(parts, fmt.Sprintf("%s %d", r.Reason, r.Count))
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text + "."
}

func count(n int32, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
