// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reserve takes reservations, for hosts that discovery makes and for those that are made by hand: one rule, which the API server arbitrates.
package reserve

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// ErrReserved says that another host has the identity, or that its machine is kept away.
var ErrReserved = errors.New("is reserved")

// ErrSoon says that another process may be creating the host that has the identity right now.
var ErrSoon = errors.New("was reserved a moment ago")

// Reserver takes reservations.
type Reserver struct {
	// Client writes reservations, Live reads from the API server, where a stale answer would be a wrong one.
	Client client.Writer
	Live   client.Reader
	// Namespace holds the reservations.
	Namespace  string
	FieldOwner string
	Now        func() time.Time
}

// Take reserves an identity for one host, cluster-wide. It succeeds again for the same host, and fails with ErrReserved or ErrSoon when another one has it.
func (r *Reserver) Take(ctx context.Context, wanted reservation.Reservation) error {
	lease := &coordinationv1.Lease{}
	lease.Namespace = r.Namespace
	wanted.WriteTo(lease)
	err := r.Client.Create(ctx, lease, client.FieldOwner(r.FieldOwner))
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("reserving %s for host %s: %w", wanted.Identity(), wanted.Host, err)
	}
	present, err := r.free(ctx, wanted)
	if err != nil || present == nil {
		return err
	}
	wanted.WriteTo(present)
	if err := r.Client.Update(ctx, present, client.FieldOwner(r.FieldOwner)); err != nil {
		return fmt.Errorf("taking over the reservation of %s: %w", wanted.Identity(), err)
	}
	return nil
}

// Check says what Take would fail with, and writes nothing.
func (r *Reserver) Check(ctx context.Context, wanted reservation.Reservation) error {
	if _, err := r.free(ctx, wanted); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// Approve records in the reservation of a host's boot MAC which user approves the host. It does nothing where there is none.
func (r *Reserver) Approve(ctx context.Context, host inventory.Ref, mac, user string) error {
	lease := &coordinationv1.Lease{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: reservation.Name(mac)}, lease)
	was := reservation.Of(lease)
	switch {
	case apierrors.IsNotFound(err), err == nil && (was.Host != host || was.ApprovedBy == user):
		return nil
	case err != nil:
		return fmt.Errorf("reading the reservation of %s: %w", mac, err)
	}
	was.ApprovedBy = user
	was.WriteTo(lease)
	if err := r.Client.Update(ctx, lease, client.FieldOwner(r.FieldOwner)); err != nil {
		return fmt.Errorf("recording who approves host %s: %w", host, err)
	}
	return nil
}

// free returns the reservation that is there and may be written for a host, nil when it says already what is wanted.
func (r *Reserver) free(ctx context.Context, wanted reservation.Reservation) (*coordinationv1.Lease, error) {
	present := &coordinationv1.Lease{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: wanted.LeaseName()}, present)
	if err != nil {
		return nil, fmt.Errorf("reading the reservation of %s: %w", wanted.Identity(), err)
	}
	was := reservation.Of(present)
	switch {
	case was.Ignored:
		return nil, fmt.Errorf("%s %w: its machine is ignored", wanted.Identity(), ErrReserved)
	case was.Host == wanted.Host && was.Node == wanted.Node && was.Ironic == wanted.Ironic:
		return nil, nil
	case was.Host != wanted.Host:
		if err := r.orphaned(ctx, was, wanted); err != nil {
			return nil, err
		}
	}
	return present, nil
}

// orphaned says whether a reservation may be taken over: its host does not exist and has had time enough to, or has the identity no more.
func (r *Reserver) orphaned(ctx context.Context, was, wanted reservation.Reservation) error {
	var host metal3v1.BareMetalHost
	err := r.Live.Get(ctx, types.NamespacedName(was.Host), &host)
	switch {
	case err == nil && holds(&host, wanted):
		return fmt.Errorf("%s %w for host %s", wanted.Identity(), ErrReserved, was.Host)
	case err != nil && !outcome.IsGone(err):
		return fmt.Errorf("reading host %s: %w", was.Host, err)
	case r.Now().Sub(was.Renewed) < reservation.Time:
		return fmt.Errorf("%s %w for host %s", wanted.Identity(), ErrSoon, was.Host)
	}
	return nil
}

// holds reports whether a host has an identity.
func holds(host *metal3v1.BareMetalHost, r reservation.Reservation) bool {
	if r.BMC == "" {
		return true // a boot MAC does not change
	}
	return host.Spec.BMC != nil && inventory.BMCKey(host.Spec.BMC.Address) == r.BMC
}
