// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// facts are the operations that tell what the service can do.
type facts struct{ *server }

// ImportCluster implements api.StrictServerInterface.
func (s *clusters) ImportCluster(ctx context.Context, r api.ImportClusterRequestObject) (api.ImportClusterResponseObject, error) {
	request := domain.NewCluster{Name: r.Body.Name, ClusterSettings: domain.ClusterSettings{
		OpenshiftVersion: r.Body.OpenshiftVersion, Imported: true, OpenshiftClusterID: r.Body.OpenshiftClusterID.String(),
	}}
	server := r.Body.APIVipDnsname
	if _, err := netip.ParseAddr(server); err == nil {
		request.APIVIPs = []string{server}
	} else if parts := strings.SplitN(strings.ToLower(server), ".", 3); len(parts) == 3 && parts[0] == "api" {
		// Hosts look for the cluster by its own name, which may not be the one that it is imported as.
		request.Name, request.BaseDNSDomain = parts[1], parts[2]
	}
	cluster, err := s.Service.CreateCluster(ctx, principal(ctx), request)
	return s.withHosts(ctx, cluster, err)
}

// AllowAddHosts implements api.StrictServerInterface.
func (s *clusters) AllowAddHosts(ctx context.Context, r api.AllowAddHostsRequestObject) (api.AllowAddHostsResponseObject, error) {
	cluster, err := s.Service.AllowHosts(ctx, principal(ctx), r.ClusterID.String())
	return s.withHosts(ctx, cluster, err)
}

// AllowAddWorkers implements api.StrictServerInterface.
func (s *clusters) AllowAddWorkers(ctx context.Context, r api.AllowAddWorkersRequestObject) (api.AllowAddWorkersResponseObject, error) {
	cluster, err := s.Service.AllowHosts(ctx, principal(ctx), r.ClusterID.String())
	return s.withHosts(ctx, cluster, err)
}

// GetClusterDefaultConfig implements api.StrictServerInterface.
func (s *clusters) GetClusterDefaultConfig(context.Context, api.GetClusterDefaultConfigRequestObject) (api.GetClusterDefaultConfigResponseObject, error) {
	return api.GetClusterDefaultConfig200JSONResponse{
		ClusterNetworkCidr: "10.128.0.0/14", ClusterNetworkHostPrefix: 23, ServiceNetworkCidr: "172.30.0.0/16", ForbiddenHostnames: []string{"localhost"},
	}, nil
}

// GetClusterSupportedPlatforms implements api.StrictServerInterface.
func (s *facts) GetClusterSupportedPlatforms(ctx context.Context, r api.GetClusterSupportedPlatformsRequestObject) (api.GetClusterSupportedPlatformsResponseObject, error) {
	_, err := s.Service.GetCluster(ctx, principal(ctx), r.ClusterID.String())
	return api.GetClusterSupportedPlatforms200JSONResponse{"baremetal", "none"}, err
}

// GetPreflightRequirements implements api.StrictServerInterface.
func (s *facts) GetPreflightRequirements(ctx context.Context, r api.GetPreflightRequirementsRequestObject) (api.GetPreflightRequirementsResponseObject, error) {
	if _, err := s.Service.GetCluster(ctx, principal(ctx), r.ClusterID.String()); err != nil {
		return nil, err
	}
	answer := api.GetPreflightRequirements200JSONResponse{Operators: []map[string]any{}}
	answer.Ocp.Master, answer.Ocp.Worker = s.requirements("master"), s.requirements("worker")
	return answer, nil
}

func (s *facts) requirements(role string) api.RoleRequirements {
	minimums := s.Service.HostMinimums()
	minimum, known := minimums[role]
	if !known {
		minimum = minimums["auto-assign"]
	}
	var shown api.RoleRequirements
	shown.Quantitative.CPUCores, shown.Quantitative.RAMMib, shown.Quantitative.DiskSizeGb = minimum.CPUs, minimum.MemoryGiB<<10, minimum.DiskGB
	shown.Quantitative.InstallationDiskSpeedThresholdMs = hostplan.SlowestSync
	return shown
}

// GetCredentials implements api.StrictServerInterface.
func (s *clusters) GetCredentials(ctx context.Context, r api.GetCredentialsRequestObject) (api.GetCredentialsResponseObject, error) {
	_, err := s.credentials(ctx, r.ClusterID, "kubeadmin-password")
	return nil, err
}

// GetIgnoredValidations implements api.StrictServerInterface.
func (s *clusters) GetIgnoredValidations(ctx context.Context, r api.GetIgnoredValidationsRequestObject) (api.GetIgnoredValidationsResponseObject, error) {
	cluster, err := s.Service.GetCluster(ctx, principal(ctx), r.ClusterID.String())
	if err != nil {
		return nil, err
	}
	return api.GetIgnoredValidations200JSONResponse(ignored(cluster)), nil
}

func ignored(c *domain.Cluster) api.IgnoredValidations {
	return api.IgnoredValidations{HostValidationIds: cmp.Or(text(c.IgnoredValidations), "[]"), ClusterValidationIds: "[]"}
}

// SetIgnoredValidations implements api.StrictServerInterface.
func (s *clusters) SetIgnoredValidations(ctx context.Context, r api.SetIgnoredValidationsRequestObject) (api.SetIgnoredValidationsResponseObject, error) {
	var ids, ofClusters []string
	if json.Unmarshal([]byte(cmp.Or(r.Body.HostValidationIds, "[]")), &ids) != nil || json.Unmarshal([]byte(cmp.Or(r.Body.ClusterValidationIds, "[]")), &ofClusters) != nil {
		return nil, invalid("host-validation-ids and cluster-validation-ids: each is a JSON list of ids in a string")
	}
	if len(ofClusters) > 0 {
		return nil, invalid("cluster-validation-ids: what a cluster itself misses cannot be ignored")
	}
	if slices.Equal(ids, []string{"all"}) {
		ids = validate.Ignorable()
	}
	if unknown := slices.IndexFunc(ids, func(id string) bool { return !slices.Contains(validate.Ignorable(), id) }); unknown >= 0 {
		return nil, invalid("host-validation-ids: there is no validation of one of these ids that can be ignored; can be: " + strings.Join(validate.Ignorable(), ", "))
	}
	cluster, err := s.Service.UpdateCluster(ctx, principal(ctx), r.ClusterID.String(), func(settings *domain.ClusterSettings) error {
		settings.IgnoredValidations = ids
		return nil
	})
	if err != nil {
		return nil, err
	}
	return api.SetIgnoredValidations201JSONResponse(ignored(cluster)), nil
}

// ResetHostValidation implements api.StrictServerInterface.
func (s *hosts) ResetHostValidation(ctx context.Context, r api.ResetHostValidationRequestObject) (api.ResetHostValidationResponseObject, error) {
	host, err := s.Service.ResetValidation(ctx, principal(ctx), key(r.InfraEnvID, r.HostID), r.ValidationID)
	shown, err := s.shown(ctx, host, err)
	return api.ResetHostValidation200JSONResponse{HostJSONResponse: shown}, err
}

const (
	supported   = "supported"
	unavailable = "unavailable"
)

// features are those of assisted-service that there are here, and those that there are not: mostly operators and platforms.
func (s *facts) features() map[string]string {
	levels := map[string]string{}
	for name := range strings.FieldsSeq("SNO CUSTOM_MANIFEST SINGLE_NODE_EXPANSION BAREMETAL_PLATFORM NONE_PLATFORM USER_MANAGED_NETWORKING CLUSTER_MANAGED_NETWORKING DUAL_STACK " +
		"DUAL_STACK_VIPS NON_STANDARD_HA_CONTROL_PLANE USER_MANAGED_LOAD_BALANCER") {
		levels[name] = supported
	}
	for name := range strings.FieldsSeq("TNA TNF VIP_AUTO_ALLOC LVM ODF LSO CNV MCE MTV OSC NUTANIX_INTEGRATION VSPHERE_INTEGRATION EXTERNAL_PLATFORM EXTERNAL_PLATFORM_OCI " +
		"PLATFORM_MANAGED_NETWORKING NODE_FEATURE_DISCOVERY NVIDIA_GPU PIPELINES SERVICEMESH SERVERLESS OPENSHIFT_AI AUTHORINO NMSTATE AMD_GPU KMM NODE_HEALTHCHECK " +
		"SELF_NODE_REMEDIATION FENCE_AGENTS_REMEDIATION NODE_MAINTENANCE KUBE_DESCHEDULER CLUSTER_OBSERVABILITY NUMA_RESOURCES OADP METALLB LOKI OPENSHIFT_LOGGING") {
		levels[name] = unavailable
	}
	levels["FULL_ISO"], levels["MINIMAL_ISO"] = unavailable, unavailable
	if s.Images != nil {
		levels["FULL_ISO"], levels["MINIMAL_ISO"] = supported, supported
	}
	return levels
}

// GetSupportedFeatures implements api.StrictServerInterface.
func (s *facts) GetSupportedFeatures(context.Context, api.GetSupportedFeaturesRequestObject) (api.GetSupportedFeaturesResponseObject, error) {
	return api.GetSupportedFeatures200JSONResponse{Features: s.features()}, nil
}

// GetDetailedSupportedFeatures implements api.StrictServerInterface.
func (s *facts) GetDetailedSupportedFeatures(context.Context, api.GetDetailedSupportedFeaturesRequestObject) (api.GetDetailedSupportedFeaturesResponseObject, error) {
	levels := s.features()
	answer := api.GetDetailedSupportedFeatures200JSONResponse{Operators: []map[string]any{}}
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		answer.Features = append(answer.Features, struct {
			FeatureSupportLevelID string   `json:"feature-support-level-id"`
			Incompatibilities     []string `json:"incompatibilities"`
			SupportLevel          string   `json:"support_level"`
		}{name, []string{}, levels[name]})
	}
	return answer, nil
}

// GetSupportedArchitectures implements api.StrictServerInterface.
func (s *facts) GetSupportedArchitectures(_ context.Context, r api.GetSupportedArchitecturesRequestObject) (api.GetSupportedArchitecturesResponseObject, error) {
	levels := map[string]string{
		"X86_64_ARCHITECTURE": unavailable, "ARM64_ARCHITECTURE": unavailable, "PPC64LE_ARCHITECTURE": unavailable, "S390X_ARCHITECTURE": unavailable, "MULTIARCH_RELEASE_IMAGE": unavailable,
	}
	known := false
	for _, v := range s.Versions {
		if v.Name != r.Params.OpenshiftVersion && !strings.HasPrefix(v.Name, r.Params.OpenshiftVersion+".") {
			continue
		}
		known = true
		for _, architecture := range v.CPUArchitectures {
			levels[strings.ToUpper(strings.Replace(architecture, "aarch64", "arm64", 1))+"_ARCHITECTURE"] = supported
		}
	}
	if !known {
		return nil, &refusal{http.StatusBadRequest, "openshift_version: there is no such version; /openshift-versions lists those that there are"}
	}
	return api.GetSupportedArchitectures200JSONResponse{Architectures: levels}, nil
}

// ListSupportedOperators implements api.StrictServerInterface.
func (s *facts) ListSupportedOperators(context.Context, api.ListSupportedOperatorsRequestObject) (api.ListSupportedOperatorsResponseObject, error) {
	return api.ListSupportedOperators200JSONResponse{}, nil
}

// ListManagedDomains implements api.StrictServerInterface.
func (s *facts) ListManagedDomains(context.Context, api.ListManagedDomainsRequestObject) (api.ListManagedDomainsResponseObject, error) {
	return api.ListManagedDomains200JSONResponse{}, nil
}

// ListReleaseSources implements api.StrictServerInterface.
func (s *facts) ListReleaseSources(context.Context, api.ListReleaseSourcesRequestObject) (api.ListReleaseSourcesResponseObject, error) {
	return api.ListReleaseSources200JSONResponse{}, nil
}
