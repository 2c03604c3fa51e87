// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// leaseCollection has the Lease leaseName, whose holder has the address of the API.
	leaseCollection = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	leaseName       = "control-plane-address"
	// leaseDuration is how long others wait after the last renewal that they saw. The holder gives up renewDeadline after its last one, which it counts from the moment it asked, and tries
	// every leaseRetry. The times are those of Kubernetes' own components: while a slow disk costs them no Lease, the address stays, too.
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	leaseRetry    = time.Second
)

// lease is the Lease as one candidate sees it. It takes and renews it by compare-and-swap, and trusts no clock but its own, as leader election of client-go does; that has the types of
// all kinds with it, for which the node image has no room.
type lease struct {
	api      *client
	identity string
	// seen is the version that the candidate saw last, and seenAt when it saw it first.
	seen   string
	seenAt time.Time
	// renewedAt is when it asked for the last renewal that it got, zero while it does not hold the Lease.
	renewedAt time.Time
}

// held is true while no other candidate can hold the Lease.
func (l *lease) held(now time.Time) bool {
	return !l.renewedAt.IsZero() && now.Before(l.renewedAt.Add(renewDeadline))
}

// try renews the Lease, or takes it where it is free. It is no error that another has it.
func (l *lease) try(ctx context.Context, now time.Time) error {
	content, err := l.api.get(ctx, leaseCollection+"/"+leaseName)
	if answers(err, http.StatusNotFound) {
		return l.write(ctx, now, http.MethodPost, leaseCollection, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}})
	}
	if err != nil {
		return err
	}
	there := &coordinationv1.Lease{}
	if err := json.Unmarshal(content, there); err != nil {
		return err
	}
	if there.ResourceVersion != l.seen {
		l.seen, l.seenAt = there.ResourceVersion, now
	}
	if holder := holderOf(there); holder != l.identity {
		l.renewedAt = time.Time{}
		if holder != "" && now.Before(l.seenAt.Add(durationOf(there))) {
			return nil
		}
	}
	return l.write(ctx, now, http.MethodPut, leaseCollection+"/"+leaseName, there)
}

// write stores the Lease with this candidate as its holder, unless another was faster.
func (l *lease) write(ctx context.Context, now time.Time, method, path string, o *coordinationv1.Lease) error {
	at := metav1.NewMicroTime(now)
	if holderOf(o) != l.identity {
		transitions := int32(1)
		if o.Spec.LeaseTransitions != nil {
			transitions += *o.Spec.LeaseTransitions
		}
		o.Spec.HolderIdentity, o.Spec.AcquireTime, o.Spec.LeaseTransitions = &l.identity, &at, &transitions
	}
	seconds := int32(leaseDuration / time.Second)
	o.APIVersion, o.Kind, o.Spec.RenewTime, o.Spec.LeaseDurationSeconds, o.ManagedFields = coordinationv1.SchemeGroupVersion.String(), "Lease", &at, &seconds, nil
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	content, err := l.api.do(ctx, method, path, body)
	if answers(err, http.StatusConflict) { // also for a name that is there by now
		l.renewedAt = time.Time{}
		return nil
	}
	if err != nil {
		return err
	}
	written := &coordinationv1.Lease{}
	if err := json.Unmarshal(content, written); err != nil {
		return err
	}
	l.seen, l.seenAt, l.renewedAt = written.ResourceVersion, now, now
	return nil
}

// release lets another candidate have the Lease at once.
func (l *lease) release(ctx context.Context) error {
	if l.renewedAt.IsZero() {
		return nil
	}
	l.renewedAt = time.Time{}
	content, err := l.api.get(ctx, leaseCollection+"/"+leaseName)
	if err != nil {
		return err
	}
	there := &coordinationv1.Lease{}
	if err := json.Unmarshal(content, there); err != nil || holderOf(there) != l.identity {
		return err
	}
	there.APIVersion, there.Kind, there.Spec.HolderIdentity = coordinationv1.SchemeGroupVersion.String(), "Lease", nil
	body, err := json.Marshal(there)
	if err != nil {
		return err
	}
	_, err = l.api.do(ctx, http.MethodPut, leaseCollection+"/"+leaseName, body)
	return err
}

func holderOf(o *coordinationv1.Lease) string {
	if o.Spec.HolderIdentity == nil {
		return ""
	}
	return *o.Spec.HolderIdentity
}

// durationOf is this program's for a Lease that states none.
func durationOf(o *coordinationv1.Lease) time.Duration {
	if o.Spec.LeaseDurationSeconds == nil {
		return leaseDuration
	}
	return time.Duration(*o.Spec.LeaseDurationSeconds) * time.Second
}
