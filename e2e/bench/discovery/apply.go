// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// owner is the field owner of bare writes.
const owner = client.FieldOwner("bench")

// applyHost applies a host's status as the operator does.
func (w *testEnv) applyHost(ctx context.Context, h *metal3v1.BareMetalHost) error {
	data, err := json.Marshal(h.Status)
	if err != nil {
		return fmt.Errorf("writing a status: %w", err)
	}
	status := metal3v1ac.BareMetalHostStatus()
	if err := json.Unmarshal(data, status); err != nil {
		return fmt.Errorf("writing a status: %w", err)
	}
	return w.plain.SubResource("status").Apply(ctx, metal3v1ac.BareMetalHost(h.Name, h.Namespace).WithStatus(status), owner, client.ForceOwnership)
}

// applyCounts applies a status of the resource that is like no other, so that the API server has to store it.
func (w *testEnv) applyCounts(ctx context.Context, item, n int) error {
	counts := metal3v1ac.DiscoveryCounts().WithNodes(int32(item)).WithKnown(int32(n)).WithHosts(0).WithWaiting(0).WithRefused(0). //nolint:gosec // small numbers
																	WithIgnored(0).WithNotSelected(0)
	object := metal3v1ac.BareMetalHostDiscovery(w.resource.Name, w.resource.Namespace).
		WithStatus(metal3v1ac.BareMetalHostDiscoveryStatus().WithCounts(counts))
	return w.plain.SubResource("status").Apply(ctx, object, owner, client.ForceOwnership)
}
