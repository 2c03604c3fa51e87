// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// claims bounds the looks at one claim: one to see that the boot MAC is free, one that it was reserved and no other host was faster, and one more.
const claims = 3

// hold says why a host may not act on a node, and nothing when it may. It costs no request where the host's reservation names the node.
func (r *Reconciler) hold(ctx context.Context, p Provisioner, host *metal3v1.BareMetalHost, uuid string) (why string, err error) {
	c := reservation.ClaimOf(host)
	lease, err := r.lease(ctx, r.Client, c.BootMAC)
	if err != nil || lease != nil && reservation.Of(lease).Names(c, uuid) {
		return "", err
	}
	node, err := p.Node(ctx, uuid)
	if err != nil {
		return "", wrap(err, "reading node %s", uuid)
	}
	return r.claim(ctx, p, host, node)
}

// claim looks at everything that the right of a host to act on a node rests on, and records the right in the reservation of the host's boot MAC.
// Only where this operator manages hosts can a host get a reservation here; beside another operator it has one from discovery.
func (r *Reconciler) claim(ctx context.Context, p Provisioner, host *metal3v1.BareMetalHost, node inventory.Node) (why string, err error) {
	for range claims {
		c, lease, err := r.observeClaim(ctx, p, host, node)
		if err != nil {
			return "", err
		}
		right, why := c.Judge()
		switch right {
		case reservation.None:
			return why, nil
		case reservation.Held, reservation.Named:
			return "", nil
		case reservation.Unreserved:
			if !r.ManageHosts {
				return fmt.Sprintf("no reservation of the boot MAC %s names this host", c.BootMAC), nil
			}
			err = r.record(ctx, c, lease, "")
		case reservation.Unrecorded:
			if whose, err := r.listed(ctx, host, node.UUID); whose != "" || err != nil {
				return whose, err
			}
			if err = r.record(ctx, c, lease, node.UUID); err == nil {
				return "", nil
			}
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return "", err
		}
	}
	return "", fmt.Errorf("reserving the boot MAC of host %s: others reserve and release it", client.ObjectKeyFromObject(host))
}

// observeClaim reads the ports of a node, and the reservations of their MACs: from the API server, because a right is given on them. The Lease
// returned is that of the host's boot MAC, nil if there is none.
func (r *Reconciler) observeClaim(ctx context.Context, p Provisioner, host *metal3v1.BareMetalHost, node inventory.Node) (
	c reservation.Claim, own *coordinationv1.Lease, err error,
) {
	c = reservation.ClaimOf(host)
	c.Node = node
	if c.Ports, err = p.PortsOf(ctx, node.UUID); err != nil {
		return c, nil, wrap(err, "reading the ports of node %s", node.UUID)
	}
	macs := []string{c.BootMAC}
	for _, port := range c.Ports {
		macs = append(macs, port.MAC)
	}
	c.Reservations = map[string]reservation.Reservation{}
	for _, mac := range macs {
		lease, err := r.lease(ctx, r.Live, mac)
		if err != nil {
			return c, nil, err
		}
		if lease == nil {
			continue
		}
		c.Reservations[mac] = reservation.Of(lease)
		if mac == c.BootMAC {
			own = lease
		}
	}
	return c, own, nil
}

// taken says whose the boot MAC of a host is, if it is another one's.
func (r *Reconciler) taken(ctx context.Context, host *metal3v1.BareMetalHost) (whose string, err error) {
	c := reservation.ClaimOf(host)
	lease, err := r.lease(ctx, r.Live, c.BootMAC)
	if err != nil || lease == nil {
		return "", err
	}
	if other := reservation.Of(lease); other.Host != c.Host && !other.Ignored {
		return fmt.Sprintf("MAC %s is reserved for host %s", other.MAC, other.Host), nil
	}
	return "", nil
}

// lease is the reservation of a MAC, nil if there is none.
func (r *Reconciler) lease(ctx context.Context, from client.Reader, mac string) (*coordinationv1.Lease, error) {
	if mac == "" {
		return nil, nil
	}
	var lease coordinationv1.Lease
	err := from.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: reservation.Name(mac)}, &lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &lease, wrap(err, "reading the reservation of %s", mac)
}

// record writes the reservation of a host's boot MAC. The write fails when another one came first.
func (r *Reconciler) record(ctx context.Context, c reservation.Claim, lease *coordinationv1.Lease, node string) error {
	wanted := reservation.Reservation{
		MAC: c.BootMAC, Host: c.Host, UID: c.UID, Node: node, OnDeletion: reservation.Release, Renewed: r.Now(),
	}
	if node != "" {
		wanted.Ironic = c.Ironic
	}
	if lease == nil {
		lease = &coordinationv1.Lease{}
		lease.Namespace = r.Namespace
		wanted.WriteTo(lease)
		return wrap(r.Client.Create(ctx, lease, client.FieldOwner(FieldOwner)), "reserving %s for host %s", c.BootMAC, c.Host)
	}
	wanted.OnDeletion = reservation.Of(lease).OnDeletion
	wanted.WriteTo(lease)
	return wrap(r.Client.Update(ctx, lease, client.FieldOwner(FieldOwner)), "reserving %s for host %s", c.BootMAC, c.Host)
}

// listed says whose a node is by what the status of another host says. Hosts that were registered before there were reservations have no other
// sign.
func (r *Reconciler) listed(ctx context.Context, host *metal3v1.BareMetalHost, uuid string) (string, error) {
	var list metal3v1.BareMetalHostList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return "", wrap(err, "listing BareMetalHosts")
	}
	for i := range list.Items {
		if h := &list.Items[i]; h.Status.Provisioning.ID == uuid && h.UID != host.UID {
			return fmt.Sprintf("node %s belongs to host %s", uuid, inventory.Ref{Namespace: h.Namespace, Name: h.Name}), nil
		}
	}
	return "", nil
}
