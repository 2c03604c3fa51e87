// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reserve"
)

const (
	// lookAgain is when the next pass counts what this one did.
	lookAgain = time.Millisecond
	// retryRaced is when a machine is tried again that another process was creating, or had reserved.
	retryRaced = 5 * time.Second
	// retryRefused is when a machine is tried again that the API server refused.
	retryRefused = time.Minute
)

func sooner(d *inventory.Decision, after time.Duration) {
	if d.RequeueAfter == 0 || after < d.RequeueAfter {
		d.RequeueAfter = after
	}
}

// execute does what was decided. Creations run side by side, and one that fails does not hinder the others. The error of a creation
// is written into the verdict on its machine.
func (r *Reconciler) execute(ctx context.Context, o *observation, d *inventory.Decision) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failures []error
	slots := make(chan struct{}, r.Workers)
	run := func(node string, f func() error) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := f()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, r.explain(ctx, o, d, node, err))
				sooner(d, retryRefused)
			} else {
				sooner(d, lookAgain)
			}
		})
	}
	for _, judgement := range d.Unruled {
		o.memory.judged[judgement] = true
	}
	for _, action := range d.Actions {
		if _, ok := action.(inventory.CreateHost); ok {
			o.creations++
		}
	}
	for _, action := range d.Actions {
		switch a := action.(type) {
		case inventory.FetchReport:
			o.view.Want(a.Node)
		case inventory.ConfirmNode:
			o.view.Confirm(a.Node)
		case inventory.DropReport:
			o.view.Drop(a.Node)
		case inventory.CreateHost:
			run(a.Node, func() error { return r.create(ctx, o, a) })
		case inventory.ApproveHost:
			run(a.Node, func() error { return r.approve(ctx, o.discovery, a) })
		case inventory.TellLost:
			run(a.Node, func() error { return r.tellLost(ctx, a) })
		case inventory.WriteStatus:
			run(a.Node, func() error { return r.complete(ctx, o.discovery, a) })
		}
	}
	wg.Wait()
	if n := o.created.Load(); o.creations > fewHosts && n > 0 {
		r.Recorder.Eventf(o.discovery, nil, corev1.EventTypeNormal, metal3v1.EventHostsDiscovered, "Discover", "Discovered %d machines, which are hosts now", n)
	}
	return errors.Join(failures...)
}

// explain turns what a creation ran into into the verdict on its machine. It returns what should be retried with back-off.
func (r *Reconciler) explain(ctx context.Context, o *observation, d *inventory.Decision, node string, err error) error {
	i := slices.IndexFunc(d.Verdicts, func(v inventory.Verdict) bool { return v.Node == node })
	refuse := func(reason string) {
		if i >= 0 {
			d.Verdicts[i].Waiting, d.Verdicts[i].Reason, d.Verdicts[i].Message = false, reason, err.Error()
			d.Counts.Waiting--
			d.Counts.Refused++
		}
	}
	switch {
	case errors.Is(err, reserve.ErrReserved):
		refuse(metal3v1.RefusedReserved)
		return nil
	case errors.Is(err, errNameTaken) && o.self.Named != nil && o.self.Named.Counts: // the next number may be free
		ctrl.LoggerFrom(ctx).V(1).Info("another resource took the number", "node", node, "why", err.Error())
		sooner(d, coalesce)
		return nil
	case errors.Is(err, errNameTaken):
		refuse(metal3v1.RefusedNameTaken)
		return nil
	case outcome.IsRefused(err):
		refuse(metal3v1.RefusedHostRejected)
		return nil
	case errors.Is(err, reserve.ErrSoon), apierrors.IsConflict(err):
		ctrl.LoggerFrom(ctx).V(1).Info("another process was faster", "node", node, "why", err.Error())
		sooner(d, retryRaced)
		return nil
	default:
		return fmt.Errorf("node %s: %w", node, err)
	}
}
