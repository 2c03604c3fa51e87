// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/controller/agentclassification"
	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// relabel makes the labels and annotations of the Agent what the machine is. Those of users, and agentLabels, stay as they are.
func relabel(ctx context.Context, seen *snapshot, queries *agentclassification.Queries) error {
	if seen.agent.Labels == nil {
		seen.agent.Labels = map[string]string{}
	}
	labels := seen.agent.Labels
	labels[agentv1.InfraEnvLabel] = infraenv.Label(seen.infraEnv)
	delete(labels, agentv1.ClusterNamespaceLabel)
	cluster := ClusterKey(seen.agent) // while the service does not know it, too: the label comes with the binding
	if seen.cluster != nil && seen.cluster.Kube != (domain.KubeRef{}) {
		cluster.Namespace = seen.cluster.Kube.Namespace
	}
	if cluster.Namespace != "" {
		labels[agentv1.ClusterNamespaceLabel] = cluster.Namespace
	}
	// What is left of a pool that is gone is of a release that ended, where the host is in a cluster. Where the Agent names none, and users of REST have not bound it, that release has not begun.
	ofRest := seen.cluster != nil && seen.cluster.Kube == (domain.KubeRef{})
	if seen.host != nil && seen.host.ClusterID != "" && (cluster.Name != "" || ofRest) && !ofPool(seen.agent) {
		delete(seen.agent.Annotations, agentv1.MachinePoolWipeAnnotation)
	}
	if seen.inventory.ReportTime == nil {
		return nil // facts and classes stay until there are others
	}
	if seen.agent.Annotations == nil {
		seen.agent.Annotations = map[string]string{}
	}
	seen.agent.Annotations[agentv1.InventoryVersionAnnotation] = agentv1.InventoryVersion
	maps.Copy(labels, facts(&seen.inventory))
	classes, err := queries.Labels(ctx, seen.classes, &seen.inventory)
	if err != nil {
		return err
	}
	for name := range labels {
		if _, wanted := classes[name]; !wanted && strings.HasPrefix(name, agentv1.ClassificationPrefix) {
			delete(labels, name)
		}
	}
	maps.Copy(labels, classes)
	return nil
}

// facts are what labels say of the hardware.
func facts(i *agentv1.HostInventory) map[string]string {
	fast := slices.ContainsFunc(i.Disks, func(d agentv1.Disk) bool {
		return slices.Contains([]string{"SSD", "NVMe"}, d.DriveType)
	})
	virtual := slices.ContainsFunc(i.CPU.Flags, func(flag string) bool { return flag == "vmx" || flag == "svm" })
	return map[string]string{
		agentv1.NonRotationalDiskLabel: strconv.FormatBool(fast),
		agentv1.CPUArchitectureLabel:   domain.LabelValue(i.CPU.Architecture),
		agentv1.CPUVirtEnabledLabel:    strconv.FormatBool(virtual),
		agentv1.ManufacturerLabel:      domain.LabelValue(i.SystemVendor.Manufacturer),
		agentv1.ProductNameLabel:       domain.LabelValue(i.SystemVendor.ProductName),
		agentv1.IsVirtualLabel:         strconv.FormatBool(i.SystemVendor.Virtual),
	}
}
