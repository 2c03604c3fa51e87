// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/e2e/render"
)

// Names in deploy/samples/discovery, and how many machines the rack of environment.DiscoveryOperator has.
const (
	discoverySamples = "deploy/samples/discovery"
	machines         = "machines"
	rackName         = "rack"
	firstHost        = "rack-sn00000001"
	rackSize         = 8
)

func discoveryActs() []act {
	return []act{
		{"switching on a rack of machines that are not registered", discoverRack},
		{"giving one of them credentials, and releasing it", releaseHost},
	}
}

func discoverRack(ctx context.Context, s *stage) (string, error) {
	started := time.Now()
	objects, err := render.Directory(discoverySamples)
	if err != nil {
		return "", err
	}
	for _, object := range objects {
		if object.GetKind() != "BareMetalHostDiscovery" {
			continue
		}
		if err := unstructured.SetNestedField(object.Object, "1s", "spec", "interval"); err != nil { // the usual ten are too long for a demo
			return "", fmt.Errorf("asking more often: %w", err)
		}
	}
	if err := render.Apply(ctx, s.admin, objects); err != nil {
		return "", err
	}
	rack := &metal3v1.BareMetalHostDiscovery{}
	err = s.until(ctx, patience, func(ctx context.Context) (bool, error) {
		if err := s.client.Get(ctx, client.ObjectKey{Namespace: machines, Name: rackName}, rack); err != nil {
			return false, fmt.Errorf("reading the discovery: %w", err)
		}
		return rack.Status.Counts.Hosts == rackSize, s.lookAtRack(ctx)
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d machines are hosts, with their hardware, after %.1f s", rackSize, time.Since(started).Seconds()), nil
}

// releaseHost does what the remark in the sample's Secret says.
func releaseHost(ctx context.Context, s *stage) (string, error) {
	host := &metal3v1.BareMetalHost{}
	key := client.ObjectKey{Namespace: machines, Name: firstHost}
	if err := s.client.Get(ctx, key, host); err != nil {
		return "", fmt.Errorf("reading host %s: %w", firstHost, err)
	}
	before := client.MergeFrom(host.DeepCopy())
	host.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish://192.0.2.1/redfish/v1/Systems/1", CredentialsName: firstHost + "-bmc"}
	host.Annotations[metal3v1.ApprovedAnnotation] = "true"
	if err := s.client.Patch(ctx, host, before); err != nil {
		return "", fmt.Errorf("giving host %s credentials: %w", firstHost, err)
	}
	err := s.until(ctx, patience, func(ctx context.Context) (bool, error) {
		if err := s.client.Get(ctx, key, host); err != nil {
			return false, fmt.Errorf("reading host %s: %w", firstHost, err)
		}
		_, held := host.Annotations[metal3v1.PausedAnnotation]
		return !held, s.lookAtRack(ctx)
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("host %s is approved and free for provisioning: its driver is switched, its node known, no second inspection", firstHost), nil
}

// lookAtRack draws the hosts.
func (s *stage) lookAtRack(ctx context.Context) error {
	hosts := &metal3v1.BareMetalHostList{}
	if err := s.client.List(ctx, hosts, client.InNamespace(machines)); err != nil {
		return fmt.Errorf("listing the hosts: %w", err)
	}
	slices.SortFunc(hosts.Items, func(a, b metal3v1.BareMetalHost) int { return cmp.Compare(a.Name, b.Name) })
	var rows [][]string
	for i := range hosts.Items {
		h := &hosts.Items[i]
		if h.Status.HardwareDetails == nil {
			continue
		}
		held := "waits for approval"
		if _, paused := h.Annotations[metal3v1.PausedAnnotation]; !paused {
			held = "released"
		}
		hw := h.Status.HardwareDetails
		rows = append(rows, []string{h.Name, h.Spec.BootMACAddress, fmt.Sprintf("%d × %s", hw.CPU.Count, hw.CPU.Arch), fmt.Sprintf("%d GiB", hw.RAMMebibytes>>10), held})
		s.screen.note(fmt.Sprintf("host %s: %s", h.Name, held))
	}
	s.screen.show(grid(s.screen.paint, []string{"HOST", "BOOT MAC", "CPU", "MEMORY", ""}, rows))
	return nil
}
