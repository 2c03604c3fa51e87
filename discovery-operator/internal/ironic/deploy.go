// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// interfaces are those of a driver that Ironic has enabled.
type interfaces struct {
	Inspect []string `json:"enabled_inspect_interfaces"`
	Deploy  []string `json:"enabled_deploy_interfaces"`
	Boot    []string `json:"enabled_boot_interfaces"`
}

// interfacesOf asks which interfaces of a driver are enabled. It fails with ErrRefused when the driver is not.
func (c *Client) interfacesOf(ctx context.Context, driver string) (i interfaces, err error) {
	err = c.call(ctx, "get_driver", http.MethodGet, "drivers/"+url.PathEscape(driver), nil, &i)
	if errors.Is(err, inventory.ErrNotFound) { // it is not the node that is missing
		return i, inventory.Failf(inventory.ProblemRefused, "driver %s is not enabled: %v", driver, err)
	}
	return i, err
}

// Prepare writes to a node what to deploy, all in one request. It fails with ErrBusy while Ironic works on the node or another instance occupies it, and
// with ErrRefused when Ironic cannot deploy in this way.
func (c *Client) Prepare(ctx context.Context, n hoststate.Node, d hoststate.Deployment) error {
	patch := []change{{"add", "/instance_info", d.Info}, {"add", "/automated_clean", d.Clean}}
	described, err := c.describe(ctx, n, d.Machine)
	if err != nil {
		return err
	}
	patch = append(patch, described...)
	if n.Instance != d.Instance {
		patch = append(patch, change{"add", "/instance_uuid", d.Instance})
	}
	if !d.DeployedBy(n.Deploy) {
		wanted := hoststate.DirectDeploy
		if d.ISO {
			wanted = hoststate.RamdiskDeploy
		}
		enabled, err := c.interfacesOf(ctx, n.Driver)
		if err != nil {
			return err
		}
		if !slices.Contains(enabled.Deploy, wanted) {
			return inventory.Failf(inventory.ProblemRefused, "Ironic has not enabled the deploy interface %s for driver %s, which this image needs", wanted, n.Driver)
		}
		patch = append(patch, change{"add", "/deploy_interface", wanted})
	}
	return c.patch(ctx, updateNode, n.UUID, "", patch)
}

// SetCleaning sets whether a node's disks are cleaned between two uses.
func (c *Client) SetCleaning(ctx context.Context, uuid string, clean bool) error {
	return c.patch(ctx, updateNode, uuid, "", []change{{"add", "/automated_clean", clean}})
}

// Vacate removes instance and instance_info from an idle node.
func (c *Client) Vacate(ctx context.Context, uuid string) error {
	return c.patch(ctx, updateNode, uuid, "", []change{{"remove", "/instance_uuid", nil}, {"add", "/instance_info", map[string]any{}}})
}

// Deploy has Ironic deploy a node's instance_info. It fails with ErrRefused when the node is not in a state in which nothing is deployed, or Ironic
// finds fault with that.
func (c *Client) Deploy(ctx context.Context, uuid string, config osimage.ConfigDrive) error {
	body := map[string]any{}
	if !config.Empty() {
		body["configdrive"] = config
	}
	return c.setProvision(ctx, uuid, hoststate.AskDeploy, body)
}

// leaving is why this operator puts a node in maintenance. A node that stays so after all is known by it.
const leaving = "its BareMetalHost is detached and is being deleted"

// BeginMaintenance puts a node in maintenance, in which Ironic deletes it also where it is in use. It does nothing to the machine.
func (c *Client) BeginMaintenance(ctx context.Context, uuid string) error {
	body := map[string]string{"reason": leaving}
	return c.call(ctx, "begin_maintenance", http.MethodPut, "nodes/"+url.PathEscape(uuid)+"/maintenance", body, nil)
}

// EndMaintenance takes a node out of maintenance.
func (c *Client) EndMaintenance(ctx context.Context, uuid string) error {
	return c.call(ctx, "end_maintenance", http.MethodDelete, "nodes/"+url.PathEscape(uuid)+"/maintenance", nil, nil)
}
