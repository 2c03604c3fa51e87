// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

const (
	// hardwareSize bounds the HardwareData that one pass writes, nextHardware is when the next ones follow.
	hardwareSize = 250
	nextHardware = time.Second
)

// hardwareData writes the HardwareData that hosts of the resource lack. It waits until every machine was read and no host is to be made, because a
// machine is usable without. It returns when to look again.
func (r *Reconciler) hardwareData(ctx context.Context, o *observation, d inventory.Decision) (time.Duration, error) {
	m := o.memory
	if d.Counts.Read < d.Counts.Nodes || o.snapshot.Partial { // reports are on their way, of which hosts are made
		m.looked = false
		return 0, nil
	}
	for _, action := range d.Actions {
		switch action.(type) {
		case inventory.CreateHost, inventory.ConfirmNode, inventory.WriteStatus:
			m.looked = false
			return 0, nil
		}
	}
	if !m.looked {
		missing, err := r.lacking(ctx, o)
		if meta.IsNoMatchError(err) {
			return 0, nil
		} else if err != nil {
			return 0, err
		}
		m.lacking, m.looked = missing, true
	}
	now := m.lacking[:min(len(m.lacking), hardwareSize)]
	m.lacking = m.lacking[len(now):]
	run, wait := sideBySide(r.Workers)
	for _, host := range now {
		run(func() error { return r.copyHardware(ctx, host) })
	}
	if err := errors.Join(wait()...); err != nil {
		m.looked = false
		return 0, err
	}
	if len(m.lacking) > 0 {
		return nextHardware, nil
	}
	return 0, nil
}

// lacking are the hosts of the resource that have a status and no HardwareData. It costs one list of names.
func (r *Reconciler) lacking(ctx context.Context, o *observation) ([]inventory.Host, error) {
	var hosts []inventory.Host
	for i := range o.snapshot.Hosts {
		h := &o.snapshot.Hosts[i]
		if h.Namespace == o.discovery.Namespace && h.Resource == o.discovery.Name && h.LastSeen != "" && h.HasStatus && !h.Going {
			hosts = append(hosts, *h)
		}
	}
	if len(hosts) == 0 {
		return nil, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(metal3v1.GroupVersion.WithKind("HardwareDataList"))
	if err := r.Live.List(ctx, list, client.InNamespace(o.discovery.Namespace)); err != nil {
		return nil, wrap(err, "listing HardwareData")
	}
	present := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		present[list.Items[i].Name] = true
	}
	var missing []inventory.Host
	for i := range hosts {
		if !present[hosts[i].Name] {
			missing = append(missing, hosts[i])
		}
	}
	return missing, nil
}

// copyHardware makes the HardwareData of a host from its status, which the cache does not have.
func (r *Reconciler) copyHardware(ctx context.Context, h inventory.Host) error {
	var host metal3v1.BareMetalHost
	err := r.Live.Get(ctx, types.NamespacedName(h.Ref), &host)
	if apierrors.IsNotFound(err) || err == nil && (string(host.UID) != h.UID || host.Status.HardwareDetails == nil || host.DeletionTimestamp != nil) {
		return nil
	} else if err != nil {
		return wrap(err, "reading host %s", h.Ref)
	}
	return r.writeHardware(ctx, h.Ref, h.UID, host.Status.HardwareDetails)
}

// writeHardware writes the HardwareData of a host, with which it goes.
func (r *Reconciler) writeHardware(ctx context.Context, host inventory.Ref, uid string, hardware *metal3v1.HardwareDetails) error {
	spec := metal3v1ac.HardwareDataSpec()
	data, err := json.Marshal(metal3v1.HardwareDataSpec{HardwareDetails: hardware})
	if err == nil {
		err = json.Unmarshal(data, spec)
	}
	if err != nil {
		return fmt.Errorf("writing HardwareData %s: %w", host, err)
	}
	object := metal3v1ac.HardwareData(host.Name, host.Namespace).WithSpec(spec).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(metal3v1.GroupVersion.String()).WithKind("BareMetalHost").
			WithName(host.Name).WithUID(types.UID(uid)).WithController(true))
	// The operator caches no HardwareData, and may not watch them.
	err = r.Client.Apply(ctx, object, client.FieldOwner(FieldOwner), client.ForceOwnership, client.DisableReadYourWritesConsistency)
	if apierrors.IsInvalid(err) {
		ctrl.LoggerFrom(ctx).Info("HardwareData not written", "BareMetalHost", host.String(), "why", err.Error())
		return nil
	}
	return wrap(err, "writing HardwareData %s", host)
}
