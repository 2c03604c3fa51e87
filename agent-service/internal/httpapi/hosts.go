// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/oapi-codegen/nullable"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostlabels"
	"github.com/muster-io/muster/agent-service/internal/httpapi/hostlist"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// hosts are the operations on hosts.
type hosts struct{ *server }

// ListHosts implements api.StrictServerInterface.
func (s *hosts) ListHosts(ctx context.Context, r api.ListHostsRequestObject) (api.ListHostsResponseObject, error) {
	infraEnv := r.InfraEnvID.String()
	if _, err := s.Service.GetInfraEnv(ctx, principal(ctx), infraEnv); err != nil {
		return nil, err
	}
	filter := domain.HostFilter{InfraEnvID: infraEnv}
	if machine := callerOf(ctx).machine; machine != nil {
		filter.HostID = machine.HostID
	}
	list, err := s.listHosts(ctx, filter, r.Params.Limit, r.Params.Offset, true)
	if err != nil {
		return nil, err
	}
	if machine := callerOf(ctx).machine; machine != nil {
		list.Hosts = slices.DeleteFunc(list.Hosts, func(h domain.Host) bool { return s.opens(ctx, *machine, h.HostKey) != nil })
	}
	return list, nil
}

// ListAllHosts implements api.StrictServerInterface.
func (s *hosts) ListAllHosts(ctx context.Context, r api.ListAllHostsRequestObject) (api.ListAllHostsResponseObject, error) {
	p := r.Params
	filter, err := chosenHosts(api.CountHostsParams{
		InfraEnvID: p.InfraEnvID, ClusterID: p.ClusterID, Unbound: p.Unbound, Search: p.Search, LabelSelector: p.LabelSelector, Role: (*api.CountHostsParamsRole)(p.Role),
	})
	if err != nil {
		return nil, err
	}
	for _, status := range given(p.Status) {
		filter.States = append(filter.States, lifecycle.State(status))
	}
	return s.listHosts(ctx, filter, p.Limit, p.Offset, given(p.WithInventory))
}

// chosenHosts is the filter of the parameters that lists and counts share.
func chosenHosts(p api.CountHostsParams) (filter domain.HostFilter, err error) {
	filter = domain.HostFilter{InfraEnvID: optional(p.InfraEnvID), ClusterID: optional(p.ClusterID), Unbound: given(p.Unbound), Search: strings.TrimSpace(given(p.Search))}
	if p.Role != nil {
		filter.Roles = []string{string(*p.Role)}
	}
	filter.Selector, err = hostlabels.Parse(given(p.LabelSelector))
	return filter, err
}

// CountHosts implements api.StrictServerInterface.
func (s *hosts) CountHosts(ctx context.Context, r api.CountHostsRequestObject) (api.CountHostsResponseObject, error) {
	filter, err := chosenHosts(r.Params)
	if err != nil {
		return nil, err
	}
	counts, err := s.Service.CountHosts(ctx, principal(ctx), filter)
	if err != nil {
		return nil, err
	}
	answer := api.CountHosts200JSONResponse{States: []api.HostCount{}}
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		answer.States = append(answer.States, api.HostCount{Status: api.HostStatus(state), Count: counts[state]})
		answer.Total += counts[state]
	}
	return answer, nil
}

func (s *server) listHosts(ctx context.Context, filter domain.HostFilter, limit, offset *int, inventories bool) (*hostlist.List, error) {
	list, err := whole(limit, offset, func(page domain.Page) (domain.List[domain.Host], error) {
		filter.Page = page
		return s.Service.ListHosts(ctx, principal(ctx), filter)
	})
	if err != nil {
		return nil, err
	}
	found := &hostlist.List{Hosts: list.Items, Total: list.Total, Shown: func(h *domain.Host) api.Host { return s.hostFor(ctx, h) }}
	if inventories {
		found.Inventories = func(some []domain.Host) (map[domain.HostKey][]byte, error) {
			return s.Service.Inventories(ctx, principal(ctx), some)
		}
	}
	return found, nil
}

// GetHost implements api.StrictServerInterface.
func (s *hosts) GetHost(ctx context.Context, r api.GetHostRequestObject) (api.GetHostResponseObject, error) {
	host, err := s.Service.GetHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID))
	shown, err := s.shown(ctx, host, err)
	return api.GetHost200JSONResponse{HostJSONResponse: shown}, err
}

// UpdateHost implements api.StrictServerInterface.
func (s *hosts) UpdateHost(ctx context.Context, r api.UpdateHostRequestObject) (api.UpdateHostResponseObject, error) {
	host, err := s.Service.UpdateHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID), func(settings *domain.HostSettings) error {
		return changeHost(settings, r.Body)
	})
	shown, err := s.shown(ctx, host, err)
	return api.UpdateHost201JSONResponse{HostJSONResponse: shown}, err
}

func changeHost(settings *domain.HostSettings, b *api.HostUpdateParams) error {
	setAs(&settings.Role, b.HostRole, func(r api.HostUpdateParamsHostRole) string { return string(r) })
	set(&settings.RequestedHostname, b.HostName)
	set(&settings.MachineConfigPool, b.MachineConfigPoolName)
	set(&settings.IgnitionEndpointToken, b.IgnitionEndpointToken)
	setList(&settings.NodeLabels, b.NodeLabels, func(labels []api.NodeLabelParams) map[string]string {
		found := map[string]string{}
		for _, label := range labels {
			found[label.Key] = label.Value
		}
		return found
	})
	setList(&settings.IgnitionEndpointHTTPHeaders, b.IgnitionEndpointHTTPHeaders, func(headers []api.IgnitionEndpointHTTPHeader) map[string]string {
		found := map[string]string{}
		for _, header := range headers {
			found[header.Key] = header.Value
		}
		return found
	})
	setList(&settings.SkipFormattingDisks, b.DisksSkipFormatting, func(disks []api.DiskSkipFormattingParams) []string {
		return skipFormatting(settings.SkipFormattingDisks, disks)
	})
	if !b.DisksSelectedConfig.IsSpecified() || b.DisksSelectedConfig.IsNull() {
		return nil
	}
	settings.InstallationDiskID, settings.InstallationDiskPath = "", ""
	for _, disk := range value(b.DisksSelectedConfig) {
		if disk.Role != "install" {
			continue
		}
		if settings.InstallationDiskID != "" {
			return invalid("disks_selected_config: only one disk can have the role install")
		}
		settings.InstallationDiskID = disk.ID
	}
	return nil
}

// skipFormatting adds disks to those that are not written to, and takes others away; an empty list takes all away.
func skipFormatting(skipped []string, changes []api.DiskSkipFormattingParams) []string {
	if len(changes) == 0 {
		return nil
	}
	for _, disk := range changes {
		skipped = slices.DeleteFunc(skipped, func(id string) bool { return id == disk.DiskID })
		if disk.SkipFormatting {
			skipped = append(skipped, disk.DiskID)
		}
	}
	return skipped
}

// DeregisterHost implements api.StrictServerInterface.
func (s *hosts) DeregisterHost(ctx context.Context, r api.DeregisterHostRequestObject) (api.DeregisterHostResponseObject, error) {
	return api.DeregisterHost204Response{}, s.Service.DeleteHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID))
}

// BindHost implements api.StrictServerInterface.
func (s *hosts) BindHost(ctx context.Context, r api.BindHostRequestObject) (api.BindHostResponseObject, error) {
	host, err := s.Service.BindHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID), r.Body.ClusterID.String(), false)
	shown, err := s.shown(ctx, host, err)
	return api.BindHost200JSONResponse{HostJSONResponse: shown}, err
}

// CheckBindHost implements api.StrictServerInterface.
func (s *hosts) CheckBindHost(ctx context.Context, r api.CheckBindHostRequestObject) (api.CheckBindHostResponseObject, error) {
	outcome, err := s.Service.CheckBind(ctx, principal(ctx), key(r.InfraEnvID, r.HostID), r.Body.ClusterID.String())
	if err != nil {
		return nil, err
	}
	answer := api.CheckBindHost200JSONResponse{Valid: outcome.Valid, Validations: byCategory(outcome.Validations)}
	if outcome.Message != "" {
		answer.Reasons = append(answer.Reasons, outcome.Message)
	}
	for _, why := range validate.Failing(outcome.Validations, true) {
		if !slices.Contains(answer.Reasons, why) { // what is not known is missing for many validations
			answer.Reasons = append(answer.Reasons, why)
		}
	}
	return answer, nil
}

// UnbindHost implements api.StrictServerInterface.
func (s *hosts) UnbindHost(ctx context.Context, r api.UnbindHostRequestObject) (api.UnbindHostResponseObject, error) {
	host, err := s.Service.UnbindHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID))
	shown, err := s.shown(ctx, host, err)
	return api.UnbindHost200JSONResponse{HostJSONResponse: shown}, err
}

// MoveHost implements api.StrictServerInterface.
func (s *hosts) MoveHost(ctx context.Context, r api.MoveHostRequestObject) (api.MoveHostResponseObject, error) {
	host, err := s.Service.MoveHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID), r.Body.ClusterID.String())
	shown, err := s.shown(ctx, host, err)
	return api.MoveHost200JSONResponse{HostJSONResponse: shown}, err
}

// InstallHost implements api.StrictServerInterface.
func (s *hosts) InstallHost(ctx context.Context, r api.InstallHostRequestObject) (api.InstallHostResponseObject, error) {
	host, err := s.Service.InstallHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID))
	shown, err := s.shown(ctx, host, err)
	return api.InstallHost202JSONResponse{HostJSONResponse: shown}, err
}

// ResetHost implements api.StrictServerInterface.
func (s *hosts) ResetHost(ctx context.Context, r api.ResetHostRequestObject) (api.ResetHostResponseObject, error) {
	host, err := s.Service.ResetHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID))
	shown, err := s.shown(ctx, host, err)
	return api.ResetHost200JSONResponse{HostJSONResponse: shown}, err
}

// ReclaimHost implements api.StrictServerInterface.
func (s *hosts) ReclaimHost(ctx context.Context, r api.ReclaimHostRequestObject) (api.ReclaimHostResponseObject, error) {
	host, err := s.Service.ReclaimHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID))
	shown, err := s.shown(ctx, host, err)
	return api.ReclaimHost200JSONResponse{HostJSONResponse: shown}, err
}

// RevokeHostTokens implements api.StrictServerInterface.
func (s *hosts) RevokeHostTokens(ctx context.Context, r api.RevokeHostTokensRequestObject) (api.RevokeHostTokensResponseObject, error) {
	host, err := s.Service.RevokeTokens(ctx, principal(ctx), key(r.InfraEnvID, r.HostID))
	shown, err := s.shown(ctx, host, err)
	return api.RevokeHostTokens200JSONResponse{HostJSONResponse: shown}, err
}

// UpdateHostInstallerArgs implements api.StrictServerInterface.
func (s *hosts) UpdateHostInstallerArgs(ctx context.Context, r api.UpdateHostInstallerArgsRequestObject) (api.UpdateHostInstallerArgsResponseObject, error) {
	host, err := s.Service.UpdateHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID), func(settings *domain.HostSettings) error {
		setList(&settings.InstallerArgs, r.Body.Args, func(args []string) string { return text(args) })
		return nil
	})
	shown, err := s.shown(ctx, host, err)
	return api.UpdateHostInstallerArgs201JSONResponse{HostJSONResponse: shown}, err
}

// GetHostIgnition implements api.StrictServerInterface.
func (s *hosts) GetHostIgnition(ctx context.Context, r api.GetHostIgnitionRequestObject) (api.GetHostIgnitionResponseObject, error) {
	host, err := s.Service.GetHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID))
	if err != nil {
		return nil, err
	}
	return api.GetHostIgnition200JSONResponse{Config: nullable.NewNullableWithValue(host.IgnitionConfigOverrides)}, nil
}

// UpdateHostIgnition implements api.StrictServerInterface.
func (s *hosts) UpdateHostIgnition(ctx context.Context, r api.UpdateHostIgnitionRequestObject) (api.UpdateHostIgnitionResponseObject, error) {
	_, err := s.Service.UpdateHost(ctx, principal(ctx), key(r.InfraEnvID, r.HostID), func(settings *domain.HostSettings) error {
		set(&settings.IgnitionConfigOverrides, r.Body.Config)
		return nil
	})
	return api.UpdateHostIgnition201Response{}, err
}

// shown is the answer about one host, with its inventory.
func (s *server) shown(ctx context.Context, host *domain.Host, err error) (api.HostJSONResponse, error) {
	if err != nil {
		return api.HostJSONResponse{}, err
	}
	shown := s.hostFor(ctx, host)
	inventory, err := s.Service.Inventory(ctx, domain.Kubernetes, host.HostKey)
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return api.HostJSONResponse{}, err
	}
	shown.Inventory = string(inventory)
	return api.HostJSONResponse(shown), nil
}

// hostFor is the answer about a host to the caller.
func (s *server) hostFor(ctx context.Context, h *domain.Host) api.Host {
	shown := s.host(h)
	if principal(ctx).ReadOnly { // first-boot data has keys and hashes of passwords
		shown.IgnitionConfigOverrides = ""
	}
	return shown
}

func (s *server) host(h *domain.Host) api.Host {
	seen := s.Service.Seen(h.HostKey)
	shown := api.Host{
		Kind: api.HostKindHost, ID: id(h.HostID), InfraEnvID: id(h.InfraEnvID), ClusterID: id(h.ClusterID),
		Href: api.Base + "/infra-envs/" + h.InfraEnvID + "/hosts/" + h.HostID, Status: api.HostStatus(h.State), StatusInfo: h.StateInfo, StatusUpdatedAt: h.StateUpdatedAt,
		ValidationsInfo: text(byCategory(h.Validations)), NtpSources: text(h.NTPSources), Role: api.HostRole(h.Role), Bootstrap: h.Bootstrap,
		RequestedHostname: h.Label(), InstallationDiskID: h.InstallationDiskID, InstallationDiskPath: h.InstallationDiskPath, InstallerArgs: h.InstallerArgs, SkipFormattingDisks: strings.Join(h.SkipFormattingDisks, ","),
		IgnitionConfigOverrides: h.IgnitionConfigOverrides, IgnitionEndpointTokenSet: h.IgnitionEndpointToken != "", MachineConfigPoolName: h.MachineConfigPool,
		NodeLabels: text(h.NodeLabels), MediaStatus: api.HostMediaStatusConnected, ConnectionTimedOut: !seen.Connected, DiscoveryAgentVersion: h.AgentVersion,
		UserName: h.User, Approved: h.Approved, Reservation: s.reservation(h), RegisteredAt: h.RegisteredAt, CheckedInAt: seen.At, CreatedAt: h.CreatedAt, UpdatedAt: h.UpdatedAt,
	}
	if h.LogsState != "" {
		shown.LogsInfo, shown.LogsCollectedAt = api.HostLogsInfo(h.LogsState), h.LogsAt
	}
	if h.DayTwo {
		shown.Kind = api.HostKindAddToExistingClusterHost
	}
	if !h.MediaConnected {
		shown.MediaStatus = api.HostMediaStatusDisconnected
	}
	if h.Progress.Stage != "" {
		shown.Progress = api.HostProgressInfo{
			CurrentStage: api.HostStage(h.Progress.Stage), ProgressInfo: h.Progress.Info, InstallationPercentage: h.Progress.Percentage,
			StageStartedAt: h.Progress.StageStartedAt, StageUpdatedAt: h.Progress.StageUpdatedAt,
		}
	}
	if c := h.Checks; c.Connected {
		shown.Peers = api.HostPeers{Tried: true, Unreachable: c.Unreachable, Slow: c.Slow, Lossy: c.Lossy, ShortMtu: c.ShortMTU}
	}
	if h.ClusterID != "" {
		for _, stage := range lifecycle.StagesOf(h.Role, h.Bootstrap) {
			shown.ProgressStages = append(shown.ProgressStages, api.HostStage(stage))
		}
	}
	return shown
}
