// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

const managedFields = nodeFields + ",driver_info,target_provision_state,power_state,target_power_state,inspect_interface,boot_interface," +
	"instance_info,deploy_interface,power_interface,automated_clean,maintenance,maintenance_reason,fault,properties,deploy_step,clean_step,driver_internal_info,provision_updated_at"

// managedFields are those of a node that the version has.
func (s *services) managedFields() string {
	fields := []string{managedFields}
	for _, later := range []struct {
		version int
		field   string
	}{{versionNetwork, "network_data"}, {versionChildren, "parent_node"}, {versionKeepOn, "disable_power_off"}} {
		if s.version >= later.version {
			fields = append(fields, later.field)
		}
	}
	return strings.Join(fields, ",")
}

// rawStep is a step of a deployment or of a cleaning; at most one of both is under way.
type rawStep struct {
	Name string `json:"step"`
}

// rawAgent is what Ironic knows of the agent in the ramdisk. It masks the token.
type rawAgent struct {
	Token        string `json:"agent_secret_token"`
	Pregenerated bool   `json:"agent_secret_token_pregenerated"`
	URL          string `json:"agent_url"`
}

// tokenTaken reports whether an agent has taken its token and not sent a heartbeat since. A token that is pregenerated is written to the media that the machine
// boots; it says nothing about an agent.
func (a rawAgent) tokenTaken() bool { return a.Token != "" && !a.Pregenerated && a.URL == "" }

// updateNode is the operation of changes of a node.
const updateNode = "update_node"

// maxError bounds what is kept of an error of Ironic's.
const maxError = 1024

// Managed reads what the manager of a host has to know of its node. A node that cannot be switched because it is its own parent is mended first.
func (c *Client) Managed(ctx context.Context, uuid string) (hoststate.Node, error) {
	var r struct {
		rawNode
		parentFields
		Target      string         `json:"target_provision_state"`
		Power       string         `json:"power_state"`
		PowerTarget string         `json:"target_power_state"`
		Inspector   string         `json:"inspect_interface"`
		Boot        string         `json:"boot_interface"`
		Deployment  map[string]any `json:"instance_info"`
		Deploy      string         `json:"deploy_interface"`
		PowerBy     string         `json:"power_interface"`
		Clean       *bool          `json:"automated_clean"`
		Maintenance bool           `json:"maintenance"`
		Why         string         `json:"maintenance_reason"`
		Fault       string         `json:"fault"`
		Properties  map[string]any `json:"properties"`
		Network     map[string]any `json:"network_data"`
		DeployStep  rawStep        `json:"deploy_step"`
		CleanStep   rawStep        `json:"clean_step"`
		Agent       rawAgent       `json:"driver_internal_info"`
		Touched     string         `json:"provision_updated_at"`
		KeepOn      *bool          `json:"disable_power_off"`
	}
	s, err := c.connect(ctx)
	if err != nil {
		return hoststate.Node{}, err
	}
	if err := c.call(ctx, "get_node", http.MethodGet, "nodes/"+url.PathEscape(uuid)+"?fields="+s.managedFields(), nil, &r); err != nil {
		return hoststate.Node{}, err
	}
	n := hoststate.Node{
		UUID: r.UUID, Name: r.Name, Driver: r.Driver, State: r.State, Target: r.Target, Power: power(r.Power), PowerTarget: r.PowerTarget,
		Instance: r.Instance, Locked: r.Reservation != "", Inspector: r.Inspector, Boot: r.Boot, Inspected: r.inspected(),
		Info: make(map[string]string, len(r.Info)), Deployment: r.Deployment, Deploy: r.Deploy, PowerBy: r.PowerBy, Clean: r.Clean,
		Maintenance: r.Maintenance, Fault: r.Fault, Leaving: r.Maintenance && r.Why == leaving, Properties: r.Properties, Network: r.Network, Step: r.DeployStep.Name + r.CleanStep.Name, TokenTaken: r.Agent.tokenTaken(),
		Untimed: r.looped(r.UUID), Touched: r.Touched, KeepOn: r.KeepOn,
	}
	if n.LastError = r.LastError; len(n.LastError) > maxError {
		n.LastError = strings.ToValidUTF8(n.LastError[:maxError], "") + "…"
	}
	for key, value := range r.Info {
		if !strings.Contains(key, "password") {
			n.Info[key] = fmt.Sprint(value)
		}
	}
	if r.tied(r.UUID) && !n.Locked {
		if err := c.untie(ctx, r.UUID); errors.Is(err, inventory.ErrBusy) {
			n.Locked = true
		} else if err != nil {
			return n, err
		}
	}
	return n, nil
}

// power is a state of power, empty where it is unknown: null, or "error" where the management controller did not say so in words that Ironic knows.
func power(state string) string {
	if state == hoststate.PowerOn || state == hoststate.PowerDown {
		return state
	}
	return ""
}

// Examined is Managed, and what ironic-inspector says of its inspections where it is there: Ironic asks it now and then, and takes its answer
// about the one before for the end of one that it has not begun.
func (c *Client) Examined(ctx context.Context, uuid string) (hoststate.Node, error) {
	n, err := c.Managed(ctx, uuid)
	if err != nil {
		return n, err
	}
	s, err := c.connect(ctx)
	if err != nil || s.inspector == nil {
		return n, err
	}
	var status struct {
		FinishedAt string `json:"finished_at"`
		Error      string `json:"error"`
	}
	_, err = c.send(ctx, s.inspector, "get_introspection_status", http.MethodGet, "introspection/"+url.PathEscape(n.UUID), nil, &status)
	if errors.Is(err, inventory.ErrNotFound) {
		return n, nil
	} else if err != nil {
		return n, err
	}
	if at, err := time.Parse("2006-01-02T15:04:05", strings.TrimSuffix(status.FinishedAt, "Z")); err == nil && status.Error == "" {
		n.Reported = at
	}
	if n.Inspector == "inspector" && !n.Inspected.IsZero() { // so says Ironic
		n.Inspected = n.Reported
		switch {
		case status.Error != "":
			n.LastError = bounded256(status.Error)
		case status.FinishedAt == "":
			n.State = hoststate.InspectWait
		}
	}
	return n, nil
}

// Find looks for a node by one of its names, and then by one of its MACs. It fails with ErrNotFound when there is none.
func (c *Client) Find(ctx context.Context, names, macs []string) (string, error) {
	for _, name := range names {
		node, err := c.Node(ctx, name)
		if err == nil || !errors.Is(err, inventory.ErrNotFound) {
			return node.UUID, err
		}
	}
	for _, mac := range macs {
		ports, err := c.portsWith(ctx, mac)
		if err != nil {
			return "", err
		}
		if len(ports) > 0 {
			return ports[0].Node, nil
		}
	}
	return "", inventory.Failf(inventory.ProblemNotFound, "no node has the name or a MAC of the host")
}

// EnrolNode makes a node. It fails with ErrBusy when the name is taken.
func (c *Client) EnrolNode(ctx context.Context, name string, a hoststate.Access) (string, error) {
	info := map[string]string{}
	maps.Copy(info, a.Info)
	if a.PasswordKey != "" {
		info[a.PasswordKey] = a.Password
	}
	var made rawNode
	body := map[string]any{"name": name, "driver": a.Driver, "driver_info": info}
	if properties := a.Machine.Properties(hoststate.Node{}); len(properties) > 0 {
		body["properties"] = properties
	}
	if len(a.Machine.Network) > 0 {
		if err := c.knows(ctx, versionNetwork, "the network data of ramdisks, which spec.preprovisioningNetworkDataName names"); err != nil {
			return "", err
		}
		body["network_data"] = a.Machine.Network
	}
	if a.KeepOn {
		if err := c.keepsOn(ctx); err != nil {
			return "", err
		}
		body["disable_power_off"] = true
	}
	if err := c.call(ctx, "create_node", http.MethodPost, "nodes", body, &made); err != nil {
		return "", c.without(a, err)
	}
	return made.UUID, nil
}

// EnsurePort gives a node a port with a MAC, if it has none. It fails with ErrRefused when another node has the MAC, and with ErrBusy while Ironic works on the node.
func (c *Client) EnsurePort(ctx context.Context, uuid, mac string) error {
	ports, err := c.PortsOf(ctx, uuid)
	if err != nil || slices.ContainsFunc(ports, func(p inventory.Port) bool { return strings.EqualFold(p.MAC, mac) }) {
		return err
	}
	refused := c.call(ctx, "create_port", http.MethodPost, "ports", map[string]any{"node_uuid": uuid, "address": mac, "pxe_enabled": true}, nil)
	if !errors.Is(refused, inventory.ErrBusy) {
		return refused
	}
	// Ironic gives one answer for a MAC that is taken and for a node that is locked.
	ports, err = c.portsWith(ctx, mac)
	switch {
	case err != nil:
		return err
	case len(ports) == 0:
		return refused
	case ports[0].Node == uuid: // made meanwhile
		return nil
	default:
		return inventory.Failf(inventory.ProblemRefused, "MAC %s belongs to another node: %v", mac, refused)
	}
}

// portsWith lists the ports with a MAC.
func (c *Client) portsWith(ctx context.Context, mac string) ([]inventory.Port, error) {
	return c.ports(ctx, url.Values{"address": {strings.ToLower(mac)}}, "")
}

// change is a part of a JSON patch.
type change struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// infos are the changes that a node's driver_info needs.
func infos(n hoststate.Node, want map[string]string) (patch []change) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if n.Info[key] != want[key] {
			patch = append(patch, change{"add", "/driver_info/" + key, want[key]})
		}
	}
	return patch
}

// describe are the changes that make a node say what its host says of the machine.
func (c *Client) describe(ctx context.Context, n hoststate.Node, m hoststate.Machine) (patch []change, err error) {
	properties := m.Properties(n)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		patch = append(patch, change{"add", "/properties/" + key, properties[key]})
	}
	if len(m.Network) > 0 && !reflect.DeepEqual(m.Network, n.Network) {
		err = c.knows(ctx, versionNetwork, "the network data of ramdisks, which spec.preprovisioningNetworkDataName names")
		patch = append(patch, change{"add", "/network_data", m.Network})
	}
	return patch, err
}

// Write gives a node the name of its host, and driver and credentials of its management controller. Settings that are not of its address are kept; the
// interfaces are reset to the defaults of the driver when that changes, which is done to the node alone: its machine runs on. A boot interface that the address asks for is set where Ironic changes interfaces. It fails with
// ErrBusy while Ironic works on the node, and with ErrRefused when the driver, or the boot interface, is not enabled, or another node has the name.
func (c *Client) Write(ctx context.Context, n hoststate.Node, name string, a hoststate.Access) error {
	patch, query, maintained := []change{}, "", false
	if n.Driver != a.Driver {
		patch, query = append(patch, change{"replace", "/driver", a.Driver}), "?reset_interfaces=True"
	}
	if n.Name != name {
		patch = append(patch, change{"add", "/name", name})
	}
	if n.Driver != a.Driver || n.InterfacesChange() && !a.Boots(n) {
		booting, err := c.booting(ctx, a.Driver, a.Boot)
		if err != nil {
			return err
		}
		patch, maintained = append(patch, booting...), len(booting) > 0 && !n.Maintenance && !n.InterfacesChange()
	}
	if a.KeepOn && n.Name != name { // one that has the name is registered, and its credentials may change all the same
		if err := c.keepsOn(ctx); err != nil {
			return err
		}
	}
	if n.KeepOn != nil && *n.KeepOn != a.KeepOn {
		patch = append(patch, change{"add", "/disable_power_off", a.KeepOn})
	}
	described, err := c.describe(ctx, n, a.Machine)
	if err != nil {
		return err
	}
	patch = append(append(patch, infos(n, a.Lacking(n))...), described...)
	if key := a.Surplus(n); key != "" {
		patch = append(patch, change{"remove", "/driver_info/" + key, nil})
	}
	if a.PasswordKey != "" {
		patch = append(patch, change{"add", "/driver_info/" + a.PasswordKey, a.Password})
	}
	if a.PowerBy != "" {
		patch = append(patch, change{"add", "/power_interface", a.PowerBy})
	}
	write := func() error {
		return c.unnamed(ctx, n, name, c.without(a, c.patch(ctx, updateNode, n.UUID, query, patch)))
	}
	if maintained {
		return c.maintained(ctx, n.UUID, write)
	}
	return write()
}

// unnamed is why a node does not get its name: Ironic gives one answer for a name that is taken and for a node that is locked.
func (c *Client) unnamed(ctx context.Context, n hoststate.Node, name string, refused error) error {
	if n.Name == name || !errors.Is(refused, inventory.ErrBusy) {
		return refused
	}
	other, err := c.Node(ctx, name)
	switch {
	case errors.Is(err, inventory.ErrNotFound), err == nil && other.UUID == n.UUID:
		return refused
	case err != nil:
		return err
	default:
		return inventory.Failf(inventory.ProblemRefused, "the name %s belongs to node %s already: remove the name of that node, or the node, in Ironic", name, other.UUID)
	}
}

// maintained changes a node in maintenance, in which Ironic changes the boot interface of a node that is in use, or failed, too. A process that dies in between leaves a
// maintenance by which the node is known as Leaving.
func (c *Client) maintained(ctx context.Context, uuid string, change func() error) error {
	if err := c.BeginMaintenance(ctx, uuid); err != nil {
		return err
	}
	failed := change()
	if err := c.EndMaintenance(ctx, uuid); failed == nil {
		return err
	}
	return failed
}

// keepsOn fails with ErrRefused where Ironic cannot be told never to switch a machine off: it would do so when it inspects, cleans or deploys the machine.
func (c *Client) keepsOn(ctx context.Context) error {
	return c.knows(ctx, versionKeepOn, "never to switch a machine off, as spec.disablePowerOff asks for")
}

// knows fails with ErrRefused where Ironic is too old to be told something.
func (c *Client) knows(ctx context.Context, version int, what string) error {
	s, err := c.connect(ctx)
	if err == nil && s.version < version {
		err = inventory.Failf(inventory.ProblemRefused, "Ironic speaks version 1.%d of its API and cannot be told %s: needed is 1.%d", s.version, what, version)
	}
	return err
}

// booting is the change that gives a node one of the boot interfaces that are asked for. It fails with ErrRefused when its driver has none of them enabled.
func (c *Client) booting(ctx context.Context, driver string, boot []string) ([]change, error) {
	if len(boot) == 0 {
		return nil, nil
	}
	enabled, err := c.interfacesOf(ctx, driver)
	if err != nil {
		return nil, err
	}
	for _, wanted := range boot {
		if slices.Contains(enabled.Boot, wanted) {
			return []change{{"add", "/boot_interface", wanted}}, nil
		}
	}
	return nil, inventory.Failf(inventory.ProblemRefused, "Ironic has not enabled the boot interface %s for driver %s, which spec.bmc.address asks for", boot[0], driver)
}

// SetProvision asks for a change of the provision state: manage, provide, abort, deleted, adopt. It fails with ErrBusy while Ironic works on the node.
func (c *Client) SetProvision(ctx context.Context, uuid, target string) error {
	return c.setProvision(ctx, uuid, target, map[string]any{})
}

// setProvision asks for a change of the provision state. Before one for which Ironic boots the ramdisk, the place of that is written to the node.
func (c *Client) setProvision(ctx context.Context, uuid, target string, body map[string]any) error {
	switch target {
	case hoststate.AskProvide, hoststate.AskDeploy, hoststate.AskDelete:
		err := c.placeRamdisk(ctx, uuid)
		if errors.Is(err, inventory.ErrBusy) && target == hoststate.AskDelete { // a deployment that is under way can be ended all the same
			break
		}
		if err != nil {
			return err
		}
	}
	body["target"] = target
	return c.call(ctx, "set_provision_state", http.MethodPut, "nodes/"+url.PathEscape(uuid)+"/states/provision", body, nil)
}

// Inspect has a machine inspected: by the ramdisk, whose place is written to the node, or by its management controller when that is wanted
// and the node's driver can do it. It fails with ErrBusy while Ironic works on the node.
func (c *Client) Inspect(ctx context.Context, n hoststate.Node, mode metal3v1.InspectionMode, m hoststate.Machine) error {
	enabled, err := c.interfacesOf(ctx, n.Driver)
	if err != nil {
		return err
	}
	patch, err := c.describe(ctx, n, m)
	if err != nil {
		return err
	}
	wanted := inspector(enabled.Inspect, mode)
	if wanted != "" && wanted != n.Inspector {
		patch = append(patch, change{"replace", "/inspect_interface", wanted})
	}
	if !slices.Contains(outOfBand, wanted) {
		patch = append(patch, infos(n, c.config.Ramdisk.info(n))...)
	}
	if len(patch) > 0 {
		if n.State == hoststate.InspectFailed { // interfaces are set in other states only
			if err := c.SetProvision(ctx, n.UUID, "manage"); err != nil {
				return err
			}
		}
		if err := c.patch(ctx, updateNode, n.UUID, "", patch); err != nil {
			return err
		}
	}
	return c.SetProvision(ctx, n.UUID, "inspect")
}

// Inspect interfaces, the preferred ones first: the ramdisk reports, or the management controller does.
var inBand, outOfBand = []string{"agent", "inspector"}, []string{"redfish", "idrac-redfish"}

// inspector chooses one of the inspect interfaces of a driver; it returns none when Ironic's own choice is as good.
func inspector(enabled []string, mode metal3v1.InspectionMode) string {
	choice := inBand
	if mode == metal3v1.InspectionFast {
		choice = slices.Concat(outOfBand, inBand)
	}
	for _, i := range choice {
		if slices.Contains(enabled, i) {
			return i
		}
	}
	return ""
}

// SetPower asks for a change of the power: see package hoststate for what can be asked. A machine whose driver cannot ask the system to shut down is switched off at once.
// It fails with ErrBusy while Ironic works on the node.
func (c *Client) SetPower(ctx context.Context, uuid, target string) error {
	ask := func(target string) error {
		return c.call(ctx, "set_power_state", http.MethodPut, "nodes/"+url.PathEscape(uuid)+"/states/power", map[string]string{"target": target}, nil)
	}
	hard := map[string]string{hoststate.SoftDown: hoststate.PowerDown, hoststate.SoftRestart: hoststate.Rebooting}[target]
	err := ask(target)
	if errors.Is(err, inventory.ErrRefused) && hard != "" {
		return ask(hard)
	}
	return err
}

// without removes the password of a management controller from what Ironic answered.
func (c *Client) without(a hoststate.Access, err error) error {
	var e *inventory.EndpointError
	if errors.As(err, &e) && a.Password != "" && strings.Contains(e.Text, a.Password) {
		return inventory.Failf(e.Problem, "%s", strings.ReplaceAll(e.Text, a.Password, "******"))
	}
	return err
}
