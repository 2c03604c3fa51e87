// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// overridesAnnotation has assisted-service change the install configuration, which is none of what is installed here.
const overridesAnnotation = "agent-install.openshift.io/install-config-overrides"

// ignored lists what a user states and the service does not carry out.
func ignored(install *hiveextv1.AgentClusterInstall) hivev1.Condition {
	var fields, said []string
	spec := &install.Spec
	for _, f := range []struct {
		name   string
		stated bool
	}{
		{"manifestsConfigMapRef", spec.ManifestsConfigMapRef != nil}, {"manifestsConfigMapRefs", len(spec.ManifestsConfigMapRefs) > 0},
		{"mirrorRegistryRef", spec.MirrorRegistryRef != nil}, {"platformType", spec.PlatformType != ""},
		{"diskEncryption", encrypts(spec.DiskEncryption)}, {"ignitionEndpoint", spec.IgnitionEndpoint != nil},
		{"controlPlane", changesThreads(spec.ControlPlane)}, {"compute", slices.ContainsFunc(spec.Compute, func(p hiveextv1.AgentMachinePool) bool { return changesThreads(&p) })},
		{"arbiter", changesThreads(spec.Arbiter)}, {"mastersSchedulable", spec.MastersSchedulable}, {"external", spec.External != nil},
		{"loadBalancer", spec.LoadBalancer != nil && spec.LoadBalancer.Type != "" && spec.LoadBalancer.Type != "ClusterManaged"},
		{"networking.networkType", spec.Networking.NetworkType != ""},
		{"networking.clusterNetwork[].hostPrefix", slices.ContainsFunc(spec.Networking.ClusterNetwork, func(n hiveextv1.ClusterNetworkEntry) bool { return n.HostPrefix != 0 })},
	} {
		if f.stated {
			fields = append(fields, f.name)
		}
	}
	if len(fields) > 0 {
		said = append(said, "These fields of the spec have no effect: "+strings.Join(fields, ", "))
	}
	if _, stated := install.Annotations[overridesAnnotation]; stated {
		said = append(said, "The annotation "+overridesAnnotation+" has no effect")
	}
	if len(said) == 0 {
		return condition(conditionIgnored, corev1.ConditionFalse, reasonAllApplied, "No field of the spec is without an effect")
	}
	return condition(conditionIgnored, corev1.ConditionTrue, reasonWithoutEffect, strings.Join(said, ". "))
}

// encrypts is true for what asks for encryption: objects that went through the kind of assisted-service have enableOn none.
func encrypts(e *hiveextv1.DiskEncryption) bool {
	return e != nil && e.EnableOn != nil && *e.EnableOn != "none"
}

// changesThreads is true for a pool that asks for another mode than that of every machine, which its kind has as a default.
func changesThreads(p *hiveextv1.AgentMachinePool) bool {
	return p != nil && p.Hyperthreading != "" && p.Hyperthreading != "Enabled"
}

// validations are those of the cluster itself, by category.
func validations(seen *snapshot) map[string]agentv1.ValidationResults {
	members := make([]*domain.Host, 0, len(seen.hosts))
	for i := range seen.hosts {
		members = append(members, &seen.hosts[i])
	}
	cluster := *seen.cluster
	cluster.Readiness = new(hostplan.ReadinessOf(&cluster, members))
	found := map[string]agentv1.ValidationResults{}
	for _, r := range cluster.Validations() {
		found[r.Category] = append(found[r.Category], agentv1.ValidationResult{ID: r.ID, Status: string(r.Status), Message: r.Message})
	}
	return found
}
