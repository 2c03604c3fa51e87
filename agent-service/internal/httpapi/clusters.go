// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/httpapi/hostlist"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// clusters are the operations on clusters.
type clusters struct{ *server }

// RegisterCluster implements api.StrictServerInterface.
func (s *clusters) RegisterCluster(ctx context.Context, r api.RegisterClusterRequestObject) (api.RegisterClusterResponseObject, error) {
	b := r.Body
	request := domain.NewCluster{Name: b.Name, ClusterSettings: domain.ClusterSettings{
		OpenshiftVersion: b.OpenshiftVersion, CPUArchitecture: string(b.CPUArchitecture), BaseDNSDomain: b.BaseDNSDomain, PullSecret: b.PullSecret, SSHPublicKey: b.SSHPublicKey,
		ControlPlaneCount: value(b.ControlPlaneCount), MachineNetworks: cidrs(value(b.MachineNetworks)), ClusterNetworks: several(b.ClusterNetworkCidr, value(b.ClusterNetworks)),
		ServiceNetworks: several(b.ServiceNetworkCidr, value(b.ServiceNetworks)), APIVIPs: addresses(value(b.APIVips)), IngressVIPs: addresses(value(b.IngressVips)), UserManagedNetworking: value(b.UserManagedNetworking),
		Proxy:                domain.Proxy{HTTP: value(b.HTTPProxy), HTTPS: value(b.HTTPSProxy), NoProxy: value(b.NoProxy)},
		AdditionalNTPSources: value(b.AdditionalNtpSource), HoldInstallation: true,
	}}
	if b.HighAvailabilityMode == "None" && request.ControlPlaneCount == 0 {
		request.ControlPlaneCount = 1
	}
	cluster, err := s.Service.CreateCluster(ctx, principal(ctx), request)
	return s.withHosts(ctx, cluster, err)
}

// ListClusters implements api.StrictServerInterface.
func (s *clusters) ListClusters(ctx context.Context, r api.ListClustersRequestObject) (api.ListClustersResponseObject, error) {
	limit, offset := r.Params.Limit, r.Params.Offset
	if r.Params.OpenshiftClusterID != nil { // it finds few, on whatever page they are
		limit, offset = nil, nil
	}
	filter := domain.ClusterFilter{Owner: given(r.Params.Owner), Search: strings.TrimSpace(given(r.Params.Search))}
	for _, status := range given(r.Params.Status) {
		filter.States = append(filter.States, lifecycle.ClusterState(status))
	}
	list, err := whole(limit, offset, func(page domain.Page) (domain.List[domain.Cluster], error) {
		filter.Page = page
		return s.Service.ListClusters(ctx, principal(ctx), filter)
	})
	if err != nil {
		return nil, err
	}
	if wanted := r.Params.OpenshiftClusterID; wanted != nil {
		list.Items = slices.DeleteFunc(list.Items, func(c domain.Cluster) bool { return c.OpenshiftClusterID != wanted.String() })
		list.Total = len(list.Items)
	}
	body := make([]api.Cluster, 0, len(list.Items))
	for i := range list.Items {
		shown, err := s.shownCluster(ctx, &list.Items[i], nil)
		if err == nil && given(r.Params.WithHosts) {
			shown.Hosts, err = s.hostsOf(ctx, list.Items[i].ID)
		}
		if err != nil {
			return nil, err
		}
		body = append(body, api.Cluster(shown))
	}
	return api.ListClusters200JSONResponse{Body: body, Headers: api.ListClusters200ResponseHeaders{XTotalCount: list.Total}}, nil
}

// GetCluster implements api.StrictServerInterface.
func (s *clusters) GetCluster(ctx context.Context, r api.GetClusterRequestObject) (api.GetClusterResponseObject, error) {
	cluster, err := s.Service.GetCluster(ctx, principal(ctx), r.ClusterID.String())
	if !given(r.Params.ExcludeHosts) {
		return s.withHosts(ctx, cluster, err)
	}
	shown, err := s.shownCluster(ctx, cluster, err)
	return api.GetCluster200JSONResponse{ClusterJSONResponse: shown}, err
}

// UpdateCluster implements api.StrictServerInterface.
func (s *clusters) UpdateCluster(ctx context.Context, r api.UpdateClusterRequestObject) (api.UpdateClusterResponseObject, error) {
	b := r.Body
	if name := value(b.Name); name != "" { // user interfaces send it with every change
		before, err := s.Service.GetCluster(ctx, principal(ctx), r.ClusterID.String())
		if err != nil {
			return nil, err
		}
		if name != before.Name {
			return nil, invalid("name: a cluster keeps its name; make another one instead")
		}
	}
	cluster, err := s.Service.UpdateCluster(ctx, principal(ctx), r.ClusterID.String(), func(settings *domain.ClusterSettings) error {
		set(&settings.PullSecret, b.PullSecret)
		set(&settings.BaseDNSDomain, b.BaseDNSDomain)
		set(&settings.ControlPlaneCount, b.ControlPlaneCount)
		set(&settings.SSHPublicKey, b.SSHPublicKey)
		setList(&settings.APIVIPs, b.APIVips, addresses)
		setList(&settings.IngressVIPs, b.IngressVips, addresses)
		for _, of := range []struct {
			networks *[]string
			one      nullable.Nullable[string]
			list     nullable.Nullable[[]api.CIDR]
		}{
			{&settings.ClusterNetworks, b.ClusterNetworkCidr, b.ClusterNetworks}, {&settings.ServiceNetworks, b.ServiceNetworkCidr, b.ServiceNetworks},
			{&settings.MachineNetworks, b.MachineNetworkCidr, b.MachineNetworks},
		} {
			setAs(of.networks, of.one, func(one string) []string { return several(one, nil) })
			setList(of.networks, of.list, cidrs)
		}
		set(&settings.UserManagedNetworking, b.UserManagedNetworking)
		set(&settings.AdditionalNTPSources, b.AdditionalNtpSource)
		set(&settings.Proxy.HTTP, b.HTTPProxy)
		set(&settings.Proxy.HTTPS, b.HTTPSProxy)
		set(&settings.Proxy.NoProxy, b.NoProxy)
		return nil
	})
	return s.withHosts(ctx, cluster, err)
}

// DeregisterCluster implements api.StrictServerInterface.
func (s *clusters) DeregisterCluster(ctx context.Context, r api.DeregisterClusterRequestObject) (api.DeregisterClusterResponseObject, error) {
	return api.DeregisterCluster204Response{}, s.Service.DeleteCluster(ctx, principal(ctx), r.ClusterID.String(), false)
}

// ListClusterHosts implements api.StrictServerInterface.
func (s *clusters) ListClusterHosts(ctx context.Context, r api.ListClusterHostsRequestObject) (api.ListClusterHostsResponseObject, error) {
	clusterID := r.ClusterID.String()
	if _, err := s.Service.GetCluster(ctx, principal(ctx), clusterID); err != nil {
		return nil, err
	}
	filter := domain.HostFilter{ClusterID: clusterID}
	if r.Params.Role != nil {
		filter.Roles = []string{string(*r.Params.Role)}
	}
	if r.Params.Status != nil {
		filter.States = []lifecycle.State{lifecycle.State(*r.Params.Status)}
	}
	return s.listHosts(ctx, filter, r.Params.Limit, r.Params.Offset, given(r.Params.WithInventory))
}

// InstallCluster implements api.StrictServerInterface.
func (s *clusters) InstallCluster(ctx context.Context, r api.InstallClusterRequestObject) (api.InstallClusterResponseObject, error) {
	cluster, err := s.Service.InstallCluster(ctx, principal(ctx), r.ClusterID.String())
	return s.withHosts(ctx, cluster, err)
}

// CancelInstallation implements api.StrictServerInterface.
func (s *clusters) CancelInstallation(ctx context.Context, r api.CancelInstallationRequestObject) (api.CancelInstallationResponseObject, error) {
	cluster, err := s.Service.CancelCluster(ctx, principal(ctx), r.ClusterID.String())
	return s.withHosts(ctx, cluster, err)
}

// ResetCluster implements api.StrictServerInterface.
func (s *clusters) ResetCluster(ctx context.Context, r api.ResetClusterRequestObject) (api.ResetClusterResponseObject, error) {
	cluster, err := s.Service.ResetCluster(ctx, principal(ctx), r.ClusterID.String())
	return s.withHosts(ctx, cluster, err)
}

// CompleteInstallation implements api.StrictServerInterface.
func (s *clusters) CompleteInstallation(ctx context.Context, r api.CompleteInstallationRequestObject) (api.CompleteInstallationResponseObject, error) {
	var cluster *domain.Cluster
	var err error
	if r.Body.IsSuccess {
		kubeconfig, _ := r.Body.Data["kubeconfig"].(string)
		cluster, err = s.Service.CompleteCluster(ctx, principal(ctx), r.ClusterID.String(), kubeconfig)
	} else {
		cluster, err = s.Service.CancelCluster(ctx, principal(ctx), r.ClusterID.String())
	}
	return s.withHosts(ctx, cluster, err)
}

// DownloadClusterCredentials implements api.StrictServerInterface.
func (s *clusters) DownloadClusterCredentials(ctx context.Context, r api.DownloadClusterCredentialsRequestObject) (api.DownloadClusterCredentialsResponseObject, error) {
	kubeconfig, err := s.credentials(ctx, r.ClusterID, string(r.Params.FileName))
	if err != nil {
		return nil, err
	}
	return api.DownloadClusterCredentials200ApplicationOctetStreamResponse{FileApplicationOctetStreamResponse: download(string(r.Params.FileName), kubeconfig)}, nil
}

func (s *server) credentials(ctx context.Context, clusterID uuid.UUID, file string) ([]byte, error) {
	if file != "kubeadmin-password" {
		return s.Service.Kubeconfig(ctx, principal(ctx), clusterID.String())
	}
	if _, err := s.Service.GetCluster(ctx, principal(ctx), clusterID.String()); err != nil {
		return nil, err
	}
	return nil, &refusal{http.StatusConflict, "this cluster has no password; use its kubeconfig"}
}

// shownCluster is the answer about a cluster; it shows that there is a pull secret, not the secret.
func (s *server) shownCluster(ctx context.Context, c *domain.Cluster, err error) (api.ClusterJSONResponse, error) {
	if err != nil {
		return api.ClusterJSONResponse{}, err
	}
	proxy := proxyFor(ctx, c.Proxy)
	shown := api.ClusterJSONResponse{
		Kind: api.ClusterKindCluster, ID: id(c.ID), Href: api.Base + "/clusters/" + c.ID, Name: c.Name, UserName: c.User, OrgID: c.Organization,
		OpenshiftVersion: c.OpenshiftVersion, OpenshiftClusterID: id(c.OpenshiftClusterID), BaseDNSDomain: c.BaseDNSDomain, ControlPlaneCount: c.ControlPlaneCount,
		CPUArchitecture: c.CPUArchitecture, HighAvailabilityMode: "Full", SSHPublicKey: c.SSHPublicKey, PullSecretSet: c.PullSecret != "", Status: api.ClusterStatus(c.Status), StatusInfo: c.StatusInfo,
		StatusUpdatedAt: c.StatusUpdatedAt, TotalHostCount: int64(c.HostCount), EnabledHostCount: int64(c.HostCount), ReadyHostCount: int64(c.ReadyHostCount),
		APIVips: vips(c.APIVIPs), IngressVips: vips(c.IngressVIPs), ClusterNetworks: networks(c.ClusterNetworks), ServiceNetworks: networks(c.ServiceNetworks),
		MachineNetworks: networks(c.MachineNetworks), MonitoredOperators: []map[string]any{}, UserManagedNetworking: c.UserManagedNetworking, AdditionalNtpSource: c.AdditionalNTPSources,
		HTTPProxy: proxy.HTTP, HTTPSProxy: proxy.HTTPS, NoProxy: proxy.NoProxy,
		InstallStartedAt: c.InstallStartedAt, InstallCompletedAt: c.InstallCompletedAt, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
		ValidationsInfo: text(byCategory(c.Validations())), Progress: api.ClusterProgressInfo(c.Progress()), DiskEncryption: api.DiskEncryption{EnableOn: api.DiskEncryptionEnableOnNone, Mode: api.Tpmv2},
	}
	if c.Imported || c.Status == lifecycle.ClusterAddingHosts {
		shown.Kind = api.ClusterKindAddHostsCluster
	}
	if c.ControlPlaneCount == 1 {
		shown.HighAvailabilityMode = "None"
	}
	return shown, nil
}

// withHosts is the answer about a cluster with its hosts and their inventories, which clients read there.
func (s *server) withHosts(ctx context.Context, c *domain.Cluster, err error) (*hostlist.Cluster, error) {
	shown, err := s.shownCluster(ctx, c, err)
	if err != nil {
		return nil, err
	}
	hosts, err := s.listHosts(ctx, domain.HostFilter{ClusterID: c.ID}, nil, nil, true)
	return &hostlist.Cluster{Cluster: api.Cluster(shown), List: hosts}, err
}

func (s *server) hostsOf(ctx context.Context, clusterID string) ([]api.Host, error) {
	list, err := s.listHosts(ctx, domain.HostFilter{ClusterID: clusterID}, nil, nil, false)
	if err != nil {
		return nil, err
	}
	hosts := make([]api.Host, 0, len(list.Hosts)) // an empty list is shown as one
	for h, err := range list.All() {
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

func byCategory(results []validate.Result) map[string][]api.Validation {
	found := map[string][]api.Validation{}
	for _, r := range results {
		found[r.Category] = append(found[r.Category], api.Validation{ID: r.ID, Status: string(r.Status), Message: r.Message})
	}
	return found
}

// several are the networks of a list, or the one of the older field.
func several(one string, list []api.CIDR) []string {
	if len(list) == 0 && one != "" {
		return []string{one}
	}
	return cidrs(list)
}

func cidrs(list []api.CIDR) []string {
	var found []string
	for _, n := range list {
		found = append(found, n.Cidr)
	}
	return found
}

func networks(list []string) []api.CIDR {
	found := make([]api.CIDR, 0, len(list)) // an empty list is shown as one
	for _, n := range list {
		found = append(found, api.CIDR{Cidr: n})
	}
	return found
}

func addresses(list []api.VIP) []string {
	var found []string
	for _, v := range list {
		found = append(found, v.IP)
	}
	return found
}

func vips(list []string) []api.VIP {
	found := make([]api.VIP, 0, len(list)) // an empty list is shown as one
	for _, v := range list {
		found = append(found, api.VIP{IP: v})
	}
	return found
}
