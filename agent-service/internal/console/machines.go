// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/machinefilter"
	"github.com/muster-io/muster/agent-service/internal/console/status"
	"github.com/muster-io/muster/agent-service/internal/console/words"
	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// machine is a host as lists show it.
type machine struct {
	api.Host
	Badge     status.Badge
	Inventory hardware.Inventory
	InfraEnv  link
	Cluster   link
	// Labels lead to the machines that have them too, that of the rack first.
	Labels []link
	// OnlyInfraEnv and OnlyCluster are the addresses of lists that show only machines of the same one, empty where there is none.
	OnlyInfraEnv, OnlyCluster string
	// Resource is that of the InfraEnv, empty for one that was made by REST.
	Resource api.CustomResource
}

// link is a name that leads somewhere.
type link struct{ Name, URL string }

// Name is what people call the machine.
func (m *machine) Name() string {
	if id := m.ID.String(); m.RequestedHostname == id || m.RequestedHostname == "" { // it has no name yet, or was not read
		return id[:8]
	}
	return m.RequestedHostname
}

// Value names the machine in forms.
func (m *machine) Value() string { return m.InfraEnvID.String() + "/" + m.ID.String() }

// URL is the machine's page.
func (m *machine) URL() string { return Base + "/machines/" + m.Value() }

// Disks are those of its own, without the medium that it was booted from.
func (m *machine) Disks() (count int, size int64) {
	for i := range m.Inventory.Disks {
		if disk := &m.Inventory.Disks[i]; !disk.IsInstallationMedia {
			count++
			size += disk.SizeBytes
		}
	}
	return count, size
}

// What is a line about the hardware in a few words: 16 CPUs · 64 GiB · 2 disks, 1.4 TB · 1 NIC.
func (m *machine) What() string {
	if m.Inventory.CPU.Count == 0 {
		return t("machines.unknown")
	}
	disks, size := m.Disks()
	said := []string{n("machines.cpus", int(m.Inventory.CPU.Count)), words.Size(m.Inventory.Memory.PhysicalBytes, true), n("machines.disks", disks, words.Size(size, false)), n("machines.nics", len(m.Inventory.Interfaces))}
	if gpus := len(m.Inventory.GPUs); gpus > 0 {
		said = append(said, n("machines.gpus", gpus))
	}
	return strings.Join(said, " · ")
}

func newMachine(h api.Host, n named) machine {
	m := machine{Host: h, Badge: status.OfHost(h.Status), InfraEnv: n.infraEnvs.link(h.InfraEnvID), Cluster: n.clusters.link(h.ClusterID), Resource: n.infraEnvs.resources[h.InfraEnvID]}
	m.narrow(machinefilter.Filter{}, n.infraEnvs.labels[h.InfraEnvID])
	_ = json.Unmarshal([]byte(h.Inventory), &m.Inventory) // a machine that has reported nothing that can be read has no hardware yet
	return m
}

// choice is a filter that is a link.
type choice struct {
	Label, URL, Tone string
	Count            int
	Current          bool
}

// hosts reads a page of hosts, and how many there are.
func (v *visit) hosts(f machinefilter.Filter, limit, offset int) ([]api.Host, int, error) {
	return page[[]api.Host](v.api.ListAllHosts(v.r.Context(), f.Params(limit, offset)))
}

// choices counts the machines of each group.
func (v *visit) choices(f machinefilter.Filter) ([]choice, error) {
	counts, err := call[api.HostCounts](v.api.CountHosts(v.r.Context(), f.Counts()))
	if err != nil {
		return nil, err
	}
	all := f.Of("")
	list := append(make([]choice, 0, len(status.Groups)+1), choice{t("group.all"), all.URL(), "", counts.Total, f.Group == ""})
	for _, g := range status.Groups {
		of, count := f.Of(g.ID), 0
		for _, one := range counts.States {
			if slices.Contains(g.States, one.Status) {
				count += one.Count
			}
		}
		if count > 0 || g.ID == f.Group {
			list = append(list, choice{g.Label(), of.URL(), g.Tone, count, g.ID == f.Group})
		}
	}
	return list, nil
}

// machineList is the page of all machines.
type machineList struct {
	Filter    machinefilter.Filter
	Choices   []choice
	Narrowed  []choice
	Machines  []machine
	Clusters  clusterChoice
	Total     int
	From, To  int
	Pages     machinefilter.Pager
	InfraEnvs int
	// MayApprove is true where the person may approve one of the machines.
	MayApprove bool
}

func listMachines(v *visit) error {
	f := machinefilter.Read(v.r.URL.Query())
	body, err := v.shared.machines.Do(v.r.Context(), machinesKey{v.session.Token, f.URL()}, func(ctx context.Context) (*machineList, error) {
		return v.as(ctx).machineList(f) //nolint:contextcheck // its request has the context
	})
	if err != nil {
		return err
	}
	return v.show("machines", t("machines.title"), body)
}

// machineList reads a page of the list.
func (v *visit) machineList(f machinefilter.Filter) (*machineList, error) {
	body := &machineList{Filter: f}
	var err error
	if body.Clusters, err = v.clustersToChoose(""); err != nil {
		return nil, err
	}
	if body.Choices, err = v.choices(f); err != nil {
		return nil, err
	}
	hosts, total, err := v.hosts(f, machinefilter.PageSize, f.Page*machinefilter.PageSize)
	if err != nil {
		return nil, err
	}
	names, err := v.namesOf(hosts, f)
	if err == nil && len(hosts) == 0 {
		_, body.InfraEnvs, err = page[[]api.InfraEnv](v.api.ListInfraEnvs(v.r.Context(), &api.ListInfraEnvsParams{Limit: new(1)}))
	}
	if err != nil {
		return nil, err
	}
	for i := range hosts {
		m := newMachine(hosts[i], names)
		m.narrow(f, names.infraEnvs.labels[m.InfraEnvID])
		body.Machines = append(body.Machines, m)
	}
	body.Total, body.From, body.To = total, f.Page*machinefilter.PageSize+min(1, len(hosts)), f.Page*machinefilter.PageSize+len(hosts)
	body.Pages = f.Pager(total)
	body.Narrowed = narrowed(f, names)
	body.MayApprove = v.mayApprove(body.Machines)
	return body, nil
}

// machinePage is one machine.
type machinePage struct {
	machine
	Failing, Passed []status.Validation
	Stages          []status.Stage
	Events          []api.Event
	Clusters        clusterChoice
	Install         string
	// Reach is nil where there is no way to draw.
	Reach      *peersPicture
	MayApprove bool
}

func showMachine(v *visit) error {
	infraEnv, host, err := v.machineID(v.r.PathValue("infra_env") + "/" + v.r.PathValue("host"))
	if err != nil {
		return err
	}
	h, err := call[api.Host](v.api.GetHost(v.r.Context(), infraEnv, host))
	if err != nil {
		return err
	}
	names, err := v.namesOf([]api.Host{h}, machinefilter.Filter{})
	if err != nil {
		return err
	}
	body := machinePage{machine: newMachine(h, names)}
	if body.Clusters, err = v.clustersToChoose(""); err != nil {
		return err
	}
	body.Failing, body.Passed = status.Validations(h.ValidationsInfo)
	body.Stages = status.HostStages(&h)
	body.Install = installDisk(&body.machine)
	body.MayApprove = v.mayApprove([]machine{body.machine})
	if body.Reach, err = v.peersOf(&body.machine, names); err != nil {
		return err
	}
	body.Events, err = v.events(&api.ListEventsParams{HostID: &host, InfraEnvID: &infraEnv}, &h)
	if err != nil {
		return err
	}
	return v.show("machine", body.Name(), &body)
}

// events are the newest, as the owner of the InfraEnv sees them, or else the creator of the cluster.
func (v *visit) events(p *api.ListEventsParams, h *api.Host) ([]api.Event, error) {
	p.Order, p.Limit = new(api.Descending), new(machinefilter.PageSize)
	list, err := call[[]api.Event](v.api.ListEvents(v.r.Context(), p))
	if isStatus(err, http.StatusNotFound) && h != nil && h.ClusterID != (uuid.UUID{}) {
		p.InfraEnvID, p.ClusterID = nil, &h.ClusterID
		list, err = call[[]api.Event](v.api.ListEvents(v.r.Context(), p))
	}
	return list, err
}

// machineID reads infra-env/host.
func (v *visit) machineID(value string) (infraEnv, host uuid.UUID, _ error) {
	first, second, _ := strings.Cut(value, "/")
	infraEnv, err := uuid.Parse(first)
	if err == nil {
		host, err = uuid.Parse(second)
	}
	if err != nil {
		return infraEnv, host, &refusal{http.StatusNotFound, t("error.nowhere")}
	}
	return infraEnv, host, nil
}

// installDisk is the path of the disk that is installed to: the one that was chosen, else none.
func installDisk(m *machine) string {
	for i := range m.Inventory.Disks {
		if d := &m.Inventory.Disks[i]; m.InstallationDiskID != "" && d.ID == m.InstallationDiskID || m.InstallationDiskPath != "" && d.Path == m.InstallationDiskPath {
			return d.Path
		}
	}
	return ""
}
