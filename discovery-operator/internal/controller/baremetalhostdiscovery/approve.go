// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhostdiscovery

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// approve notes on a host that the rule of its resource approves it. The rule is younger than the host.
func (r *Reconciler) approve(ctx context.Context, d *metal3v1.BareMetalHostDiscovery, a inventory.ApproveHost) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": a.UID, "labels": map[string]any{metal3v1.ApprovalLabel: "approved"}}})
	if err != nil {
		return fmt.Errorf("approving host %s: %w", a.Host, err)
	}
	host := &metal3v1.BareMetalHost{}
	host.Namespace, host.Name = a.Host.Namespace, a.Host.Name
	err = r.Client.Patch(ctx, host, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldOwner))
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return wrap(err, "approving host %s", a.Host)
	}
	r.ruled(d, host)
	ctrl.LoggerFrom(ctx).Info("host approved", "BareMetalHost", a.Host.String(), "by", "spec.approvalRule")
	return nil
}

// ruled publishes that a rule approved a host.
func (r *Reconciler) ruled(d *metal3v1.BareMetalHostDiscovery, host *metal3v1.BareMetalHost) {
	r.Recorder.Eventf(host, d, corev1.EventTypeNormal, metal3v1.EventHostApproved, "Approve", "Approved by spec.approvalRule of BareMetalHostDiscovery %s", d.Name)
}
