// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/machinefilter"
	"github.com/muster-io/muster/agent-service/internal/console/status"
	"github.com/muster-io/muster/agent-service/internal/console/words"
)

// clusterRow is a cluster in the list.
type clusterRow struct {
	api.Cluster
	Badge status.Badge
}

// URL is the page of the cluster.
func (c *clusterRow) URL() string { return Base + "/clusters/" + c.ID.String() }

type clusterList struct {
	Rows          []clusterRow
	Total         int
	Before, After string
}

func listClusters(v *visit) error {
	at := machinefilter.PageNumber(v.r.URL.Query())
	list, total, err := page[[]api.Cluster](v.api.ListClusters(v.r.Context(), &api.ListClustersParams{Limit: new(machinefilter.PageSize), Offset: new(at * machinefilter.PageSize)}))
	if err != nil {
		return err
	}
	body := clusterList{Total: total}
	for i := range list {
		body.Rows = append(body.Rows, clusterRow{list[i], status.OfCluster(list[i].Status)})
	}
	body.Before, body.After = machinefilter.Neighbours("/clusters", at, total)
	return v.show("clusters", t("clusters.title"), &body)
}

type clusterForm struct {
	infraEnvForm
	// Versions are those that there are, and Version the one that is chosen.
	Versions []string
	Version  string
}

func newCluster(v *visit) error {
	return v.askCluster(infraEnvForm{Values: url.Values{}})
}

func (v *visit) askCluster(form infraEnvForm) error {
	versions, err := call[map[string]api.OpenshiftVersion](v.api.ListSupportedOpenshiftVersions(v.r.Context(), &api.ListSupportedOpenshiftVersionsParams{}))
	if err != nil {
		return err
	}
	body := clusterForm{infraEnvForm: form, Versions: slices.Sorted(maps.Keys(versions)), Version: form.Get("version")}
	for name, version := range versions {
		if body.Version == "" && version.Default {
			body.Version = name
		}
	}
	return v.show("cluster-new", t("clusters.new"), body)
}

func createCluster(v *visit) error {
	if err := v.r.ParseForm(); err != nil {
		return &refusal{http.StatusBadRequest, t("error.form")}
	}
	field := func(name string) string { return strings.TrimSpace(v.r.PostForm.Get(name)) }
	wanted := api.ClusterCreateParams{
		Name: field("name"), OpenshiftVersion: field("version"), PullSecret: field("pull_secret"), BaseDNSDomain: field("domain"), SSHPublicKey: field("ssh_key"),
	}
	if field("size") == "1" {
		wanted.ControlPlaneCount = nullable.NewNullableWithValue(1)
	}
	if network := field("machine_network"); network != "" {
		wanted.MachineNetworks.Set([]api.CIDR{{Cidr: network}})
	}
	if vip := field("api_vip"); vip != "" {
		wanted.APIVips.Set([]api.VIP{{IP: vip}})
	}
	if vip := field("ingress_vip"); vip != "" {
		wanted.IngressVips.Set([]api.VIP{{IP: vip}})
	}
	made, err := call[api.Cluster](v.api.RegisterCluster(v.r.Context(), wanted))
	if reason, ok := reasonOf(err); ok {
		return v.askCluster(infraEnvForm{Values: v.r.PostForm, Problem: reason})
	}
	if err != nil {
		return err
	}
	return v.redirect("/clusters/" + made.ID.String())
}

// role is the first machines of one role in a cluster.
type role struct {
	Name     string
	Machines []machine
	// Total counts all of the role, which URL leads to.
	Total int
	URL   string
}

// More is true where machines of the role are left out.
func (r role) More() bool { return r.Total > len(r.Machines) }

type clusterPage struct {
	clusterRow
	// Missing are requirements that are not met, Met those that are.
	Missing, Met []string
	Roles        []role
	// Total counts the machines of all roles, which All leads to.
	Total  int
	All    string
	Stages []status.Stage
	Events []api.Event
	// Installed clusters have credentials; ready ones can be installed.
	Installed, Ready bool
}

func (v *visit) clusterID() (uuid.UUID, error) {
	id, err := uuid.Parse(v.r.PathValue("id"))
	if err != nil {
		return id, &refusal{http.StatusNotFound, t("error.nowhere")}
	}
	return id, nil
}

func showCluster(v *visit) error {
	id, err := v.clusterID()
	if err != nil {
		return err
	}
	c, err := call[api.Cluster](v.api.GetCluster(v.r.Context(), id, &api.GetClusterParams{ExcludeHosts: new(true)}))
	if err != nil {
		return err
	}
	body := clusterPage{clusterRow: clusterRow{c, status.OfCluster(c.Status)}, All: machinefilter.Filter{Cluster: &id}.URL()}
	own := named{noInfraEnvs(), noClusters()} // the InfraEnvs of machines are not shown
	own.clusters.known[id] = c.Name
	for _, name := range machinefilter.Roles {
		of, err := v.role(id, name, own)
		if err != nil {
			return err
		}
		if of.Total > 0 {
			body.Roles, body.Total = append(body.Roles, of), body.Total+of.Total
		}
	}
	failing, met := status.Validations(c.ValidationsInfo)
	for _, one := range failing {
		body.Missing = append(body.Missing, one.Message)
	}
	for _, one := range met {
		body.Met = append(body.Met, one.Message)
	}
	body.Installed = c.Status == api.ClusterStatusInstalled || c.Status == api.ClusterStatusAddingHosts
	body.Ready = c.Status == api.ClusterStatusReady
	body.Stages = status.ClusterStages(&c)
	if body.Events, err = v.events(&api.ListEventsParams{ClusterID: &id}, nil); err != nil {
		return err
	}
	return v.show("cluster", c.Name, &body)
}

// role reads the first machines of a role in a cluster, and counts all.
func (v *visit) role(id uuid.UUID, name string, own named) (role, error) {
	hosts, total, err := page[[]api.Host](v.api.ListClusterHosts(v.r.Context(), id, &api.ListClusterHostsParams{
		Role: new(api.ListClusterHostsParamsRole(name)), WithInventory: new(true), Limit: new(machinefilter.PageSize),
	}))
	of := role{Name: words.Named("role", name), Total: total, URL: machinefilter.Filter{Cluster: &id, Role: name}.URL()}
	for i := range hosts {
		of.Machines = append(of.Machines, newMachine(hosts[i], own))
	}
	return of, err
}

func installCluster(v *visit) error {
	id, err := v.clusterID()
	if err == nil {
		_, err = call[api.Cluster](v.api.InstallCluster(v.r.Context(), id))
	}
	if err != nil {
		return err
	}
	return v.redirect("/clusters/" + id.String())
}

func downloadCredentials(v *visit) error {
	id, err := v.clusterID()
	if err != nil {
		return err
	}
	name := v.r.PathValue("file")
	response, err := v.api.DownloadClusterCredentials(v.r.Context(), id, &api.DownloadClusterCredentialsParams{FileName: api.DownloadClusterCredentialsParamsFileName(name)})
	return v.pass(name, response, err)
}

func downloadLogs(v *visit) error {
	id, err := v.clusterID()
	if err != nil {
		return err
	}
	p := &api.DownloadClusterLogsParams{}
	if host, err := uuid.Parse(v.r.URL.Query().Get("host")); err == nil {
		p.HostID, p.LogsType = &host, new(api.DownloadClusterLogsParamsLogsType("host"))
	}
	response, err := v.api.DownloadClusterLogs(v.r.Context(), id, p)
	return v.pass("logs.tar", response, err)
}
