// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// ReservationTime is how long a reservation without host is respected. The creation of a host that has been reserved is given
// up in half that time, so a reservation that is older belongs to nobody any more.
const ReservationTime = 60 * time.Second

const reservationPrefix = "boot-mac-"

// ReservationName is the name of the Lease that reserves a boot MAC: one MAC, one name, and the API server lets one be created.
func ReservationName(mac string) string {
	return reservationPrefix + strings.ReplaceAll(strings.ToLower(mac), ":", "-")
}

func macOf(reservation string) string {
	tail, ok := strings.CutPrefix(reservation, reservationPrefix)
	if !ok {
		return ""
	}
	return inventory.NormalMAC(tail)
}

// errReserved says that another host has the boot MAC, or that it is kept away.
var errReserved = errors.New("the boot MAC is reserved")

// errSoon says that another process may be creating the host right now.
var errSoon = errors.New("the boot MAC was reserved a moment ago")

// reserve takes the boot MAC of a machine for one host, cluster-wide. It succeeds again for the same host.
func (r *Reconciler) reserve(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, c inventory.CreateHost) error {
	lease := r.reservation(d, c)
	err := r.Client.Create(ctx, lease, client.FieldOwner(FieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		return wrap(err, "reserving %s for host %s", c.BootMAC, c.Host)
	}
	var present coordinationv1.Lease
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(lease), &present); err != nil {
		return wrap(err, "reading the reservation of %s", c.BootMAC)
	}
	switch {
	case present.Labels[metal3v1.IgnoredLabel] == "true":
		return fmt.Errorf("%w: its machine is ignored", errReserved)
	case present.Annotations[metal3v1.HostAnnotation] == c.Host.String():
		return nil
	}
	return r.takeOver(ctx, &present, lease, c)
}

func (r *Reconciler) reservation(d *metal3v1.BareMetalHostDiscovery, c inventory.CreateHost) *coordinationv1.Lease {
	onDeletion := "Release"
	if d.Spec.Rediscover == metal3v1.RediscoverIgnore || d.Spec.NodeDeletion == metal3v1.NodeDeletionKeep {
		onDeletion = "Ignore"
	}
	holder := c.Host.String()
	if len(holder) > 63 {
		holder = holder[:63]
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: ReservationName(c.BootMAC),
			Labels: map[string]string{metal3v1.ReservationLabel: "true"},
			Annotations: map[string]string{
				metal3v1.HostAnnotation: c.Host.String(), metal3v1.OnDeletionAnnotation: onDeletion,
			},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(holder), RenewTime: new(metav1.NewMicroTime(r.now())),
			LeaseDurationSeconds: new(int32(ReservationTime.Seconds())),
		},
	}
}

// takeOver takes a reservation whose host does not exist and has had time enough to.
func (r *Reconciler) takeOver(ctx context.Context, present, wanted *coordinationv1.Lease, c inventory.CreateHost) error {
	holder := present.Annotations[metal3v1.HostAnnotation]
	namespace, name, _ := strings.Cut(holder, "/")
	var host metal3v1.BareMetalHost
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &host)
	switch {
	case err == nil:
		return fmt.Errorf("%w by host %s", errReserved, holder)
	case !apierrors.IsNotFound(err):
		return wrap(err, "reading host %s", holder)
	case present.Spec.RenewTime != nil && r.now().Sub(present.Spec.RenewTime.Time) < ReservationTime:
		return errSoon
	}
	present.Labels, present.Annotations, present.Spec = wanted.Labels, wanted.Annotations, wanted.Spec
	return wrap(r.Client.Update(ctx, present, client.FieldOwner(FieldOwner)), "taking over the reservation of %s", c.BootMAC)
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
