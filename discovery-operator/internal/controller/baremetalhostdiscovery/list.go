// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/truncate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// list keeps one DiscoveredMachine for each machine that is not a host. It returns when to look again. While Ironic does not answer, the list stays.
func (r *Reconciler) list(ctx context.Context, o *observation, d inventory.Decision) (time.Duration, error) {
	if o.view != nil && (o.snapshot.Frozen || o.snapshot.Partial) {
		return 0, nil
	}
	objects, present, err := r.listed(ctx, o.discovery)
	if meta.IsNoMatchError(err) {
		ctrl.LoggerFrom(ctx).V(1).Info("machines not listed", "why", err.Error())
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	listing := inventory.List(r.now(), shortened(d.Verdicts), present, o.memory.waits)
	o.memory.waits = listing.Waits
	return listing.RequeueAfter, r.change(ctx, o.discovery, listing, objects)
}

// shortened are the verdicts as objects can hold them.
func shortened(verdicts []inventory.Verdict) []inventory.Verdict {
	out := make([]inventory.Verdict, 0, len(verdicts))
	for _, v := range verdicts {
		v.Message = truncate.To(v.Message, 512)
		out = append(out, v)
	}
	return out
}

// listed are the objects of a resource, by node. They are shared with the cache and are not changed.
func (r *Reconciler) listed(ctx context.Context, d *metal3v1.BareMetalHostDiscovery) (
	objects map[string]*metal3v1.DiscoveredMachine, present map[string]inventory.Listed, err error,
) {
	var list metal3v1.DiscoveredMachineList
	err = r.Client.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingLabels{metal3v1.DiscoveryLabel: d.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, nil, wrap(err, "listing DiscoveredMachines")
	}
	objects, present = map[string]*metal3v1.DiscoveredMachine{}, map[string]inventory.Listed{}
	for i := range list.Items {
		m := &list.Items[i]
		objects[m.Spec.Node] = m
		present[m.Spec.Node] = inventory.Listed{Since: m.Spec.Since.Time, Verdict: inventory.Verdict{
			Node: m.Spec.Node, BootMAC: m.Spec.BootMAC, Name: m.Spec.HostName, Waiting: m.Spec.State == metal3v1.MachineWaiting,
			Reason: m.Spec.Reason, Message: m.Spec.Message,
		}}
	}
	return objects, present, nil
}

// change writes and removes objects side by side.
func (r *Reconciler) change(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, l inventory.Listing, objects map[string]*metal3v1.DiscoveredMachine) error {
	run, wait := sideBySide(r.Workers)
	for _, m := range l.Write {
		run(func() error {
			err := r.Client.Apply(ctx, machineOf(d, m), client.FieldOwner(FieldOwner), client.ForceOwnership)
			if apierrors.IsInvalid(err) { // a node with an identifier that is none
				ctrl.LoggerFrom(ctx).Info("machine not listed", "node", m.Node, "why", err.Error())
				return nil
			}
			return wrap(err, "listing node %s", m.Node)
		})
	}
	for _, node := range l.Remove {
		o := objects[node].DeepCopy()
		run(func() error {
			err := r.Client.Delete(ctx, o, client.Preconditions{UID: &o.UID})
			return outcome.IgnoreGone(wrap(err, "removing node %s from the list", node))
		})
	}
	return errors.Join(wait()...)
}

// sideBySide runs functions at the same time, at most as many as there are workers, and returns what failed.
func sideBySide(workers int) (run func(func() error), wait func() []error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failures []error
	slots := make(chan struct{}, workers)
	run = func(f func() error) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, err)
			}
		})
	}
	return run, func() []error { wg.Wait(); return failures }
}

// machineOf is the object of a machine. It goes with the resource.
func machineOf(d *metal3v1.BareMetalHostDiscovery, m inventory.Listed) *metal3v1ac.DiscoveredMachineApplyConfiguration {
	state := metal3v1.MachineRefused
	if m.Waiting {
		state = metal3v1.MachineWaiting
	}
	spec := metal3v1ac.DiscoveredMachineSpec().WithDiscovery(d.Name).WithNode(m.Node).WithState(state).WithReason(m.Reason).WithMessage(m.Message).
		WithSince(metav1.NewTime(m.Since.Truncate(time.Second)))
	if m.BootMAC != "" {
		spec.WithBootMAC(m.BootMAC)
	}
	if m.Name != "" {
		spec.WithHostName(m.Name)
	}
	return metal3v1ac.DiscoveredMachine(inventory.LegalName(d.Name+"-"+m.Node), d.Namespace).WithSpec(spec).
		WithLabels(map[string]string{metal3v1.DiscoveryLabel: d.Name, metal3v1.ReasonLabel: m.Reason}).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(metal3v1.GroupVersion.String()).WithKind("BareMetalHostDiscovery").
			WithName(d.Name).WithUID(d.UID).WithController(true))
}
