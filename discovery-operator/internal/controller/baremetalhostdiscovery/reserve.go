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
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// errReserved says that another host has the boot MAC, or that it is kept away.
var errReserved = errors.New("the boot MAC is reserved")

// errSoon says that another process may be creating the host right now.
var errSoon = errors.New("the boot MAC was reserved a moment ago")

// reserve takes the boot MAC of a machine for one host, cluster-wide, and with it the right of that host to act on the machine's node. It
// succeeds again for the same host.
func (r *Reconciler) reserve(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, c inventory.CreateHost) error {
	wanted, err := r.reservation(d, c)
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{}
	lease.Namespace = r.Namespace
	wanted.WriteTo(lease)
	err = r.Client.Create(ctx, lease, client.FieldOwner(FieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return wrap(err, "reserving %s for host %s", c.BootMAC, c.Host)
	}
	present, err := r.reserved(ctx, c.BootMAC)
	if err != nil {
		return err
	}
	switch was := reservation.Of(present); {
	case was.Ignored:
		return fmt.Errorf("%w: its machine is ignored", errReserved)
	case was.Host == c.Host && was.Node == wanted.Node && was.Ironic == wanted.Ironic:
		return nil
	case was.Host != c.Host:
		if err := r.orphaned(ctx, was); err != nil {
			return err
		}
	}
	wanted.WriteTo(present)
	return wrap(r.Client.Update(ctx, present, client.FieldOwner(FieldOwner)), "taking over the reservation of %s", c.BootMAC)
}

func (r *Reconciler) reserved(ctx context.Context, mac string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: reservation.Name(mac)}, lease)
	return lease, wrap(err, "reading the reservation of %s", mac)
}

func (r *Reconciler) reservation(d *metal3v1.BareMetalHostDiscovery, c inventory.CreateHost) (reservation.Reservation, error) {
	wanted := reservation.Reservation{MAC: c.BootMAC, Host: c.Host, Node: c.Node, OnDeletion: reservation.Release, Renewed: r.now()}
	if d.Spec.Rediscover == metal3v1.RediscoverIgnore || d.Spec.NodeDeletion == metal3v1.NodeDeletionKeep {
		wanted.OnDeletion = reservation.Ignore
	}
	var err error
	wanted.Ironic, err = referenceOf(d)
	return wanted, err
}

// referenceOf is what a host and its reservation say of the Ironic that knows the node.
func referenceOf(d *metal3v1.BareMetalHostDiscovery) (string, error) {
	if d.Spec.Ironic == nil {
		return "", nil
	}
	data, err := json.Marshal(d.Spec.Ironic)
	return string(data), wrap(err, "recording the endpoint of %s/%s", d.Namespace, d.Name)
}

// orphaned says whether a reservation may be taken over: its host does not exist and has had time enough to.
func (r *Reconciler) orphaned(ctx context.Context, was reservation.Reservation) error {
	var host metal3v1.BareMetalHost
	err := r.Live.Get(ctx, types.NamespacedName(was.Host), &host)
	switch {
	case err == nil:
		return fmt.Errorf("%w by host %s", errReserved, was.Host)
	case !apierrors.IsNotFound(err):
		return wrap(err, "reading host %s", was.Host)
	case r.now().Sub(was.Renewed) < reservation.Time:
		return errSoon
	}
	return nil
}

// renew makes the reservation of a host name the node that its machine has now. Only a host that has the reservation gets a node.
func (r *Reconciler) renew(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, a inventory.WriteStatus) error {
	present, err := r.reserved(ctx, a.BootMAC)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w by nobody, and host %s has to have it", errReserved, a.Host)
	} else if err != nil {
		return err
	}
	endpoint, err := referenceOf(d)
	if err != nil {
		return err
	}
	switch was := reservation.Of(present); {
	case was.Host != a.Host || was.Ignored:
		return fmt.Errorf("%w, and not by host %s", errReserved, a.Host)
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
