// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reservation has the Leases that reserve boot MACs, and the rule that rests on them: which host may act on which node.
// They stand in the operator's own namespace, where users of hosts cannot write, and so they count where a host's annotations
// and status do not. The package is pure.
package reservation

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Time is how long a reservation without host is respected. The creation of a host that has been reserved is given up in half
// that time, so an older reservation has no owner any more.
const Time = 60 * time.Second

// Ways to end a reservation when its host is deleted.
const (
	Release = "Release"
	Ignore  = "Ignore"
)

const prefix = "boot-mac-"

// Name is the name of the Lease that reserves a boot MAC: one MAC, one name, and the API server lets one be created.
func Name(mac string) string {
	return prefix + strings.ReplaceAll(strings.ToLower(mac), ":", "-")
}

// MAC is the boot MAC that a Lease reserves, empty when it reserves none.
func MAC(lease string) string {
	tail, ok := strings.CutPrefix(lease, prefix)
	if !ok {
		return ""
	}
	return inventory.NormalMAC(tail)
}

// Reservation of a boot MAC, or of a management controller.
type Reservation struct {
	MAC string
	// BMC is the key of a management controller; then there is no MAC.
	BMC string
	// Host is the one that it is for. UID is that host's, empty while the reservation is older than the host.
	Host inventory.Ref
	UID  string
	// Node is the node that the host may act on, empty while there is none, and in reservations of earlier versions.
	Node string
	// Ironic is the endpoint that knows the node, as JSON of an IronicReference; empty for the operator's own.
	Ironic string
	// Ignored says that no host has it, and that the machine is kept away.
	Ignored bool
	// OnDeletion is Release or Ignore.
	OnDeletion string
	// ApprovedBy is the user who approved the host last, as the API server knows the user; empty where no admission check saw it.
	ApprovedBy string
	// Made is when the reservation was made, Renewed when it was last taken.
	Made, Renewed time.Time
}

// Of reads a Lease.
func Of(l *coordinationv1.Lease) Reservation {
	namespace, name, _ := strings.Cut(l.Annotations[metal3v1.HostAnnotation], "/")
	r := Reservation{
		MAC: MAC(l.Name), Host: inventory.Ref{Namespace: namespace, Name: name}, UID: l.Annotations[metal3v1.HostUIDAnnotation],
		Node: l.Annotations[metal3v1.NodeAnnotation], Ironic: l.Annotations[metal3v1.IronicAnnotation],
		Ignored: l.Labels[metal3v1.IgnoredLabel] == "true", OnDeletion: l.Annotations[metal3v1.OnDeletionAnnotation],
		Made: l.CreationTimestamp.Time, BMC: l.Annotations[metal3v1.ReservedBMCAnnotation],
		ApprovedBy: l.Annotations[metal3v1.ApprovedByAnnotation],
	}
	if l.Spec.RenewTime != nil {
		r.Renewed = l.Spec.RenewTime.Time
	}
	return r
}

// WriteTo puts the reservation into a Lease, and leaves nothing of an earlier one.
func (r Reservation) WriteTo(l *coordinationv1.Lease) {
	l.Name = r.LeaseName()
	l.Labels = map[string]string{metal3v1.ReservationLabel: "true"}
	l.Annotations = map[string]string{metal3v1.HostAnnotation: r.Host.String(), metal3v1.OnDeletionAnnotation: r.OnDeletion}
	for key, value := range map[string]string{
		metal3v1.HostUIDAnnotation: r.UID, metal3v1.NodeAnnotation: r.Node, metal3v1.IronicAnnotation: r.Ironic,
		metal3v1.ReservedBMCAnnotation: r.BMC, metal3v1.ApprovedByAnnotation: r.ApprovedBy,
	} {
		if value != "" {
			l.Annotations[key] = value
		}
	}
	holder := r.Host.String()
	if len(holder) > 63 {
		holder = holder[:63]
	}
	l.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new(holder), RenewTime: new(metav1.NewMicroTime(r.Renewed)), LeaseDurationSeconds: new(int32(Time.Seconds())),
	}
}
