// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"maps"
	"regexp"

	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// WrongChecksum is a checksum, of type sha256, that no image has.
const WrongChecksum = "0000000000000000000000000000000000000000000000000000000000000000"

// deployment is what a rack knows of what is deployed on a machine.
type deployment struct {
	deployInfo      map[string]any
	deploy, powerBy string
	clean           *bool
	maintenance     bool
	leaving         bool
	config          osimage.ConfigDrive
	// deployments counts those that were begun, cleanings those that were done.
	deployments, cleanings int
}

// settleDeployment does what a node was asked for. A machine that nothing can restart is cleaned when its user has restarted it: see Restart.
func (n *node) settleDeployment() {
	switch n.State {
	case hoststate.Deploying:
		n.State, n.target, n.LastError = hoststate.Active, "", ""
		if n.deployInfo["image_os_hash_value"] == WrongChecksum {
			n.State, n.LastError = hoststate.DeployFailed, "Image failed to verify against checksum"
		}
	case hoststate.Adopting:
		n.State, n.target, n.LastError = hoststate.Active, "", ""
		if n.deployInfo["image_source"] == nil && n.deployInfo["boot_iso"] == nil {
			n.State, n.LastError = hoststate.AdoptFailed, "Unable to adopt: the node lacks image_source"
		}
	case hoststate.Undeploying:
		n.Instance, n.deployInfo = "", nil
		n.State, n.target = inventory.NodeAvailable, ""
		if n.clean == nil || *n.clean {
			n.State = hoststate.Cleaning
			if n.Driver == hoststate.ManualDriver {
				n.State = hoststate.CleanWait
			}
		}
	case hoststate.Cleaning:
		n.State, n.target, n.LastError = inventory.NodeAvailable, "", ""
		n.cleanings++
		if n.marked(MarkUncleanable) {
			n.State, n.LastError, n.maintenance = hoststate.CleanFailed, "Timeout reached while cleaning the node", true
		}
	}
}

// setDeployment takes a request of a deployment, or of its end.
func (n *node) setDeployment(target string) error {
	switch {
	case n.maintenance && target == hoststate.AskProvide:
		return inventory.Failf(inventory.ProblemRefused, "node %s is in maintenance", n.UUID)
	case target == hoststate.AskManage && (n.State == hoststate.CleanFailed || n.State == hoststate.AdoptFailed):
		n.State = inventory.NodeManageable
	case target == hoststate.AskProvide && n.State == inventory.NodeManageable:
		n.State, n.target = inventory.NodeAvailable, ""
		if n.clean == nil || *n.clean {
			n.State, n.target = hoststate.Cleaning, inventory.NodeAvailable
		}
		if n.State == hoststate.Cleaning && n.Driver == hoststate.ManualDriver && n.marked(MarkAgentless) {
			n.State = hoststate.CleanWait
		}
	case target == hoststate.AskAdopt && (n.State == inventory.NodeManageable || n.State == hoststate.AdoptFailed):
		n.State, n.target = hoststate.Adopting, hoststate.Active
	case target == hoststate.AskDelete && (hoststate.Node{State: n.State}).Deployed():
		n.State, n.target = hoststate.Undeploying, inventory.NodeAvailable
	default:
		return n.cannot(target)
	}
	return nil
}

// secrets are what Ironic takes for secrets in a text; it masks the rest of the word with them.
var secrets = regexp.MustCompile(`((?:token|password|secret)\s*=)[^\s'"]+`)

// masked is an instance_info as Ironic shows it.
func masked(info map[string]any) map[string]any {
	shown := maps.Clone(info)
	for key, value := range shown {
		if text, ok := value.(string); ok {
			shown[key] = secrets.ReplaceAllString(text, "$1******")
		}
	}
	return shown
}

// with changes a node that is not worked on.
func (r *Rack) with(id string, change func(n *node) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.change(id)
	if err != nil {
		return err
	}
	if r.nodes[i].busyNow() {
		return inventory.Failf(inventory.ProblemBusy, "node %s is locked", id)
	}
	return change(r.nodes[i])
}

// Prepare writes to a node what to deploy.
func (r *Rack) Prepare(_ context.Context, known hoststate.Node, d hoststate.Deployment) error {
	return r.with(known.UUID, func(n *node) error {
		if n.Instance != "" && n.Instance != d.Instance {
			return inventory.Failf(inventory.ProblemBusy, "node %s is occupied by instance %s", n.UUID, n.Instance)
		}
		wanted := hoststate.DirectDeploy
		if d.ISO {
			wanted = hoststate.RamdiskDeploy
		}
		if n.State == hoststate.DeployFailed && n.deploy != wanted { // so says Ironic
			return inventory.Failf(inventory.ProblemBusy, "node %s can not have deploy_interface updated while it is %s", n.UUID, n.State)
		}
		n.Instance, n.deployInfo, n.clean, n.deploy = d.Instance, maps.Clone(d.Info), &d.Clean, wanted
		n.describe(d.Machine)
		return nil
	})
}

// Deploy has a node deploy its instance_info.
func (r *Rack) Deploy(_ context.Context, id string, config osimage.ConfigDrive) error {
	return r.with(id, func(n *node) error {
		if n.State != inventory.NodeAvailable && n.State != hoststate.DeployFailed || n.maintenance {
			return n.cannot(hoststate.AskDeploy)
		}
		again := n.State == hoststate.DeployFailed
		n.State, n.target, n.config = hoststate.Deploying, hoststate.Active, config
		if again && n.Driver == hoststate.ManualDriver { // Ironic does not listen to the agent any more
			n.State = hoststate.DeployWait
		}
		n.deployments++
		return nil
	})
}

// SetCleaning sets whether a node's disks are cleaned between two uses.
func (r *Rack) SetCleaning(_ context.Context, id string, clean bool) error {
	return r.with(id, func(n *node) error {
		n.clean = &clean
		return nil
	})
}

// Vacate removes the instance_info of an idle node.
func (r *Rack) Vacate(_ context.Context, id string) error {
	return r.with(id, func(n *node) error {
		n.Instance, n.deployInfo = "", nil
		return nil
	})
}

// BeginMaintenance puts a node in maintenance.
func (r *Rack) BeginMaintenance(_ context.Context, id string) error {
	return r.with(id, func(n *node) error {
		n.maintenance, n.leaving = true, true
		return nil
	})
}

// EndMaintenance takes a node out of maintenance.
func (r *Rack) EndMaintenance(_ context.Context, id string) error {
	return r.with(id, func(n *node) error {
		n.maintenance, n.leaving = false, false
		return nil
	})
}

// Restart makes the machine of a node boot the ramdisk, as its user does where nothing else can. It reports whether Ironic waited for that.
func (r *Rack) Restart(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(id)
	if i < 0 {
		return false
	}
	switch n := r.nodes[i]; n.State {
	case hoststate.CleanWait:
		n.State = hoststate.Cleaning
	case hoststate.DeployWait:
		n.State = hoststate.Deploying
	default:
		return false
	}
	return true
}

// Deployed is what was deployed on the machine of a node: how often, how often it was cleaned, and with which configuration.
func (r *Rack) Deployed(id string) (deployments, cleanings int, config osimage.ConfigDrive) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(id); i >= 0 {
		n := r.nodes[i]
		return n.deployments, n.cleanings, n.config
	}
	return 0, 0, osimage.ConfigDrive{}
}
