// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// ignored lists what a user states and the service does not carry out.
func ignored(spec *hiveextv1.AgentClusterInstallSpec) hivev1.Condition {
	var fields []string
	for _, f := range []struct {
		name   string
		stated bool
	}{
		{"manifestsConfigMapRef", spec.ManifestsConfigMapRef != nil}, {"manifestsConfigMapRefs", len(spec.ManifestsConfigMapRefs) > 0},
		{"mirrorRegistryRef", spec.MirrorRegistryRef != nil}, {"platformType", spec.PlatformType != ""},
		{"diskEncryption", encrypts(spec.DiskEncryption)}, {"ignitionEndpoint", spec.IgnitionEndpoint != nil}, {"ntpSources", len(spec.NTPSources) > 0},
	} {
		if f.stated {
			fields = append(fields, f.name)
		}
	}
	if len(fields) == 0 {
		return condition(conditionIgnored, corev1.ConditionFalse, reasonAllApplied, "No field of the spec is without an effect")
	}
	return condition(conditionIgnored, corev1.ConditionTrue, reasonWithoutEffect, "These fields of the spec have no effect: "+strings.Join(fields, ", "))
}

// encrypts is true for what asks for encryption: objects that went through the kind of assisted-service have enableOn none.
func encrypts(e *hiveextv1.DiskEncryption) bool {
	return e != nil && e.EnableOn != nil && *e.EnableOn != "none"
}

// validations are those of the cluster itself, by category. Their ids are those of assisted-service.
func validations(seen *snapshot, c counts) map[string]agentv1.ValidationResults {
	cluster := seen.cluster
	unready := 0
	for i := range seen.hosts {
		if !ready(&seen.hosts[i]) {
			unready++
		}
	}
	return map[string]agentv1.ValidationResults{
		"configuration": {verdict("pull-secret-set", cluster.PullSecret != "", "The pull secret is set", "The ClusterDeployment names no pull secret")},
		"network": {
			verdict("dns-domain-defined", cluster.BaseDNSDomain != "", "The base domain is defined", "The ClusterDeployment has no base domain"),
			verdict("api-vips-defined", cluster.UserManagedNetworking || len(cluster.APIVIPs) > 0 || cluster.ControlPlaneCount == 1, "The addresses of the API are defined, or not needed",
				"The addresses of the API are not defined: set apiVIPs, or userManagedNetworking"),
		},
		"hosts-data": {
			verdict("all-hosts-are-ready-to-install", unready == 0, "All hosts in the cluster are ready to install", fmt.Sprintf("%d hosts of the cluster are not ready to install", unready)),
			verdict("sufficient-masters-count", c.controlPlane >= cluster.ControlPlaneCount, "The cluster has the hosts of its control plane",
				fmt.Sprintf("The cluster needs %d hosts of the control plane and has %d", cluster.ControlPlaneCount, c.controlPlane)),
		},
	}
}

// ready is true for hosts that can be installed, or are.
func ready(h *domain.Host) bool {
	switch h.State {
	case lifecycle.Known, lifecycle.PreparingSuccessful, lifecycle.Installed, lifecycle.AddedToExistingCluster:
		return true
	default:
		return lifecycle.Installs(h.State) || h.State == lifecycle.PreparingForInstallation
	}
}

func verdict(id string, ok bool, good, bad string) agentv1.ValidationResult {
	if ok {
		return agentv1.ValidationResult{ID: id, Status: string(validate.Success), Message: good}
	}
	return agentv1.ValidationResult{ID: id, Status: string(validate.Failure), Message: bad}
}
