// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-io/muster/agent-service/internal/intern"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// Transform is how Agents are kept in a cache: without managed fields, and with one copy of what many of them say. Most of an Agent is what others say as well: types,
// reasons and messages of conditions and validations, labels, and what machines of one model have. An Agent that was read without a copy must not be changed: others change with it.
func Transform() cache.TransformFunc {
	var s sharer
	return func(object any) (any, error) {
		if made, ok := object.(*agentv1.Agent); ok {
			s.share(made)
		}
		return object, nil
	}
}

// sharer has what Agents have in common.
type sharer struct {
	texts intern.Texts
	lists intern.Lists
	maps  intern.Maps
}

// share makes an Agent refer to what is in memory already.
func (s *sharer) share(agent *agentv1.Agent) {
	agent.ManagedFields = nil
	s.shareMeta(&agent.ObjectMeta)
	s.texts.Share(&agent.Kind, &agent.APIVersion, &agent.Spec.Role)
	if ref := agent.Spec.ClusterDeploymentName; ref != nil {
		s.texts.Share(&ref.Namespace, &ref.Name)
	}
	status := &agent.Status
	s.texts.Share(&status.Role, &status.Kind, &status.Progress.CurrentStage, &status.DebugInfo.State, &status.DebugInfo.StateInfo)
	status.Progress.ProgressStages = s.lists.Once(status.Progress.ProgressStages)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		s.texts.Share(&c.Type, &c.Reason, &c.Message)
		c.Status = corev1.ConditionStatus(s.texts.Once(string(c.Status)))
	}
	s.shareValidations(status.ValidationsInfo)
	for i := range status.NtpSources {
		s.texts.Share(&status.NtpSources[i].SourceName, &status.NtpSources[i].SourceState)
	}
	s.shareInventory(&status.Inventory)
}

func (s *sharer) shareMeta(meta *metav1.ObjectMeta) {
	s.texts.Share(&meta.Namespace)
	meta.Finalizers = s.lists.Once(meta.Finalizers)
	meta.Labels, meta.Annotations = s.maps.Once(meta.Labels), s.maps.Once(meta.Annotations)
	for i := range meta.OwnerReferences {
		owner := &meta.OwnerReferences[i]
		s.texts.Share(&owner.APIVersion, &owner.Kind, &owner.Name)
		owner.UID = types.UID(s.texts.Once(string(owner.UID)))
	}
}

func (s *sharer) shareValidations(info map[string]agentv1.ValidationResults) {
	for _, results := range info {
		for i := range results {
			s.texts.Share(&results[i].ID, &results[i].Status, &results[i].Message)
		}
	}
}

// shareInventory leaves alone what tells a machine from others: its name, serial numbers and addresses.
func (s *sharer) shareInventory(inventory *agentv1.HostInventory) {
	cpu, vendor := &inventory.CPU, &inventory.SystemVendor
	s.texts.Share(&inventory.Boot.CurrentBootMode, &inventory.Boot.PXEInterface, &inventory.Boot.DeviceType, &cpu.ModelName, &cpu.Architecture, &vendor.Manufacturer, &vendor.ProductName)
	cpu.Flags = s.lists.Once(cpu.Flags)
	for i := range inventory.Disks {
		d := &inventory.Disks[i]
		s.texts.Share(&d.ByPath, &d.DriveType, &d.Hctl, &d.Model, &d.Name, &d.Path, &d.Vendor)
		d.InstallationEligibility.NotEligibleReasons = s.lists.Once(d.InstallationEligibility.NotEligibleReasons)
	}
	for i := range inventory.Gpus {
		g := &inventory.Gpus[i]
		s.texts.Share(&g.Address, &g.DeviceID, &g.Name, &g.Vendor, &g.VendorID)
	}
	for i := range inventory.Interfaces {
		n := &inventory.Interfaces[i]
		s.texts.Share(&n.Name, &n.BiosDevName, &n.ClientID, &n.Product, &n.Vendor)
		n.Flags = s.lists.Once(n.Flags)
	}
}
