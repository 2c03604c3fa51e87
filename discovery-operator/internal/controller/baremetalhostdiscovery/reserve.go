// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
	"github.com/muster-io/muster/discovery-operator/internal/reserve"
)

// reserve takes the boot MAC of a machine for one host, cluster-wide, and with it the right of that host to act on the machine's node; and the management
// controller of the host, by the rule that holds for hosts that are made by hand. It succeeds again for the same host.
func (r *Reconciler) reserve(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, c inventory.CreateHost) error {
	wanted, err := r.reservations(d, c)
	if err != nil {
		return err
	}
	reserver := reserve.Reserver{Client: r.Client, Live: r.Live, Namespace: r.Namespace, FieldOwner: FieldOwner, Now: r.now}
	for _, w := range wanted {
		if err := reserver.Take(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// unreserve gives reservations up whose name another host has, so that the machine can be a host of another name at once.
func (r *Reconciler) unreserve(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, c inventory.CreateHost, why error) error {
	if !errors.Is(why, errNameTaken) {
		return nil
	}
	taken, err := r.reservations(d, c)
	if err != nil {
		return err
	}
	for _, w := range taken {
		lease := &coordinationv1.Lease{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: w.LeaseName()}, lease)
		if was := reservation.Of(lease); err == nil && was.Host == c.Host && was.UID == "" && !was.Ignored {
			err = r.Client.Delete(ctx, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
		}
		if outcome.IgnoreGone(err) != nil && !apierrors.IsConflict(err) { // after a conflict another process has it
			return wrap(err, "releasing the reservation of %s", w.Identity())
		}
	}
	return nil
}

func (r *Reconciler) reserved(ctx context.Context, mac string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: reservation.Name(mac)}, lease)
	return lease, wrap(err, "reading the reservation of %s", mac)
}

// reservations are what a new host needs: its boot MAC, and its management controller.
func (r *Reconciler) reservations(d *metal3v1.BareMetalHostDiscovery, c inventory.CreateHost) ([]reservation.Reservation, error) {
	wanted := reservation.Reservation{MAC: c.BootMAC, Host: c.Host, Node: c.Node, OnDeletion: reservation.Release, Renewed: r.now()}
	if d.Spec.Rediscover == metal3v1.RediscoverIgnore || d.Spec.NodeDeletion == metal3v1.NodeDeletionKeep {
		wanted.OnDeletion = reservation.Ignore
	}
	var err error
	if wanted.Ironic, err = referenceOf(d); err != nil {
		return nil, err
	}
	out := []reservation.Reservation{wanted}
	if key := inventory.BMCKey(c.BMCAddress); c.BMCAddress != "" && key != "" && !c.ShareBMC {
		out = append(out, reservation.Reservation{BMC: key, Host: c.Host, OnDeletion: reservation.Release, Renewed: r.now()})
	}
	return out, nil
}

// referenceOf is what a host and its reservation say of the Ironic that knows the node.
func referenceOf(d *metal3v1.BareMetalHostDiscovery) (string, error) {
	if d.Spec.Ironic == nil {
		return "", nil
	}
	data, err := json.Marshal(d.Spec.Ironic)
	return string(data), wrap(err, "recording the endpoint of %s/%s", d.Namespace, d.Name)
}

// renew makes the reservation of a host name the node that its machine has now. Only a host that has the reservation gets a node.
func (r *Reconciler) renew(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, a inventory.WriteStatus) error {
	present, err := r.reserved(ctx, a.BootMAC)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("MAC %s %w for no host, and host %s has to have it", a.BootMAC, reserve.ErrReserved, a.Host)
	} else if err != nil {
		return err
	}
	endpoint, err := referenceOf(d)
	if err != nil {
		return err
	}
	switch was := reservation.Of(present); {
	case was.Host != a.Host || was.Ignored:
		return fmt.Errorf("MAC %s %w, and not for host %s", a.BootMAC, reserve.ErrReserved, a.Host)
	case was.Node != a.Node || was.Ironic != endpoint:
		was.Node, was.UID, was.Ironic = a.Node, a.UID, endpoint
		was.WriteTo(present)
		return wrap(r.Client.Update(ctx, present, client.FieldOwner(FieldOwner)), "renewing the reservation of %s", a.BootMAC)
	}
	return nil
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
