// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostlabels says which labels selectors choose hosts by.
package hostlabels

import (
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// Of are the labels of a host: what its InfraEnv gives its Agents, what the user gives the node, and facts of the hardware, each before the former.
func Of(h *domain.Host, ofInfraEnv map[string]string) labels.Set {
	set := labels.Set{}
	maps.Copy(set, ofInfraEnv)
	maps.Copy(set, h.NodeLabels)
	set[agentv1.CPUArchitectureLabel] = domain.LabelValue(h.Summary.CPUArchitecture)
	set[agentv1.ManufacturerLabel] = domain.LabelValue(h.Summary.Manufacturer)
	set[agentv1.ProductNameLabel] = domain.LabelValue(h.Summary.ProductName)
	set[agentv1.IsVirtualLabel] = strconv.FormatBool(h.Summary.Virtual)
	return set
}

// Parse reads the selector of a request. The error is a refusal of kind Invalid.
func Parse(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, domain.Refuse(domain.Invalid, "RequestInvalid", "label_selector: write a selector such as rack in (a,b),gpu: %s", domain.Truncate(err.Error(), 256))
	}
	return selector, nil
}

// Stored is true for labels that stand in the records of hosts and InfraEnvs; the others follow from the hardware.
func Stored(key string) bool {
	switch key {
	case agentv1.CPUArchitectureLabel, agentv1.ManufacturerLabel, agentv1.ProductNameLabel, agentv1.IsVirtualLabel:
		return false
	default:
		return true
	}
}
