// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeaddress

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/muster-io/muster/agent-service/internal/addressplan"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
)

// abandon releases the claims of an Agent that is gone: a user deleted it, and says by that that its machine does not use them.
func (r *Reconciler) abandon(ctx context.Context, request ctrl.Request, found []claim) error {
	for _, c := range found {
		owner := metav1.GetControllerOf(c)
		if owner == nil || owner.Kind != "Agent" || owner.Name != request.Name {
			continue
		}
		live := &agentv1.Agent{}
		err := r.Live.Get(ctx, request.NamespacedName, live)
		if err != nil && !outcome.IsGone(err) {
			return fmt.Errorf("reading Agent %s: %w", request, err)
		}
		if live.UID == owner.UID {
			return nil
		}
		if err := r.release(ctx, c.Unstructured); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) execute(ctx context.Context, owner *agentv1.Agent, found []claim, seen *addressplan.Snapshot, d addressplan.Decision) error {
	if d.Choose {
		return r.Service.ChoosePools(ctx, seen.Host.HostKey, seen.Host.ClusterID, seen.Pools)
	}
	by := map[string]claim{}
	for _, c := range found {
		by[c.GetName()] = c
	}
	for _, name := range d.Release {
		if err := r.release(ctx, by[name].Unstructured); err != nil {
			return err
		}
	}
	for _, name := range d.Hold {
		c := by[name]
		if err := r.patch(ctx, c.Unstructured, func(o *unstructured.Unstructured) { controllerutil.AddFinalizer(o, agentv1.NodeAddressFinalizer) }); err != nil {
			return err
		}
	}
	if len(d.Create) > 0 {
		if same, err := r.unchanged(ctx, seen.Host); err != nil || !same {
			return err
		}
	}
	for name, pool := range d.Create {
		why, err := r.create(ctx, owner, name, pool)
		if err != nil {
			return err
		}
		if why != "" {
			is := seen.Host.Addressing
			if d.Note != nil {
				is = *d.Note
			}
			is.Missing = pool.String() + ": " + why
			d.Note = &is
		}
	}
	if d.Note == nil {
		return nil
	}
	if err := r.Service.NoteAddressing(ctx, seen.Host, *d.Note); err != nil && domain.KindOf(err) != domain.NotFound {
		return fmt.Errorf("keeping the addresses of host %s: %w", seen.Host.HostKey, err)
	}
	return nil
}

// unchanged reports whether a host is as it was read: another replica may have released its claims since. Its change is notified, and the claims are looked at again.
func (r *Reconciler) unchanged(ctx context.Context, was *domain.Host) (bool, error) {
	is, err := r.Service.GetHost(ctx, domain.Kubernetes, was.HostKey)
	if domain.KindOf(err) == domain.NotFound {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading host %s: %w", was.HostKey, err)
	}
	return is.AddressedAs(was), nil
}

// create makes a claim; why says what is in the way.
func (r *Reconciler) create(ctx context.Context, owner *agentv1.Agent, name string, pool domain.AddressPool) (why string, err error) {
	kind, served := r.kindOf(KindOf(pool))
	if !served {
		wanted := KindOf(pool)
		return fmt.Sprintf("the API server does not serve %s of %s: install its custom resource definition", wanted.Kind, wanted.Group), nil
	}
	made := kind.newClaim(owner, name, pool)
	err = r.Client.Create(ctx, made)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return "", fmt.Errorf("making %s %s/%s: %w", kind.Claim.Kind, owner.Namespace, name, err)
		}
		return "", nil
	}
	// Another replica made it, or the cache is late, or a user took its label away.
	there := empty(kind.Claim)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(made), there); err != nil {
		return "", outcome.IgnoreGone(err)
	}
	if !metav1.IsControlledBy(there, owner) {
		return "a claim " + name + " is there already, and does not belong to the Agent: delete it", nil
	}
	return "", r.patch(ctx, there, func(o *unstructured.Unstructured) {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[agentv1.ClaimOwnerLabel] = owner.Name
		o.SetLabels(labels)
	})
}

func (r *Reconciler) kindOf(wanted schema.GroupKind) (Kind, bool) {
	for _, kind := range r.Kinds {
		if kind.Claim.GroupKind() == wanted {
			return kind, true
		}
	}
	return Kind{}, false
}

// release lets an address be given to others.
func (r *Reconciler) release(ctx context.Context, c *unstructured.Unstructured) error {
	if c.GetDeletionTimestamp() == nil {
		uid := c.GetUID()
		if err := r.Client.Delete(ctx, c, client.Preconditions{UID: &uid}); outcome.IgnoreGone(err) != nil {
			return fmt.Errorf("deleting %s %s/%s: %w", c.GetKind(), c.GetNamespace(), c.GetName(), err)
		}
	}
	return r.patch(ctx, c, func(o *unstructured.Unstructured) { controllerutil.RemoveFinalizer(o, agentv1.NodeAddressFinalizer) })
}

// patch changes a claim as it was read: a list of finalizers is replaced as a whole, so a change in between is a conflict.
func (r *Reconciler) patch(ctx context.Context, c *unstructured.Unstructured, change func(*unstructured.Unstructured)) error {
	after := c.DeepCopy()
	change(after)
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{})); outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("changing %s %s/%s: %w", c.GetKind(), c.GetNamespace(), c.GetName(), err)
	}
	return nil
}
