// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-io/muster/discovery-operator/internal/ramdisk/disk"
)

// known are the commands that the agent has.
var known = map[string]bool{
	"clean.get_clean_steps": true, "clean.execute_clean_step": true, "deploy.get_deploy_steps": true, "deploy.execute_deploy_step": true,
	"standby.prepare_image": true, "standby.get_partition_uuids": true, "standby.sync": true, "standby.run_image": true, "standby.reboot": true,
	"standby.power_off": true, "image.install_bootloader": true, "log.collect_system_logs": true,
}

// Steps of cleaning and deployment.
const (
	eraseMetadata = "erase_devices_metadata"
	eraseDevices  = "erase_devices"
	writeImage    = "write_image"
)

// managers are the collections of steps that the agent has, each with its version: with another one, Ironic reads the steps again.
var managers = map[string]string{"MusterRamdisk": "1"}

// errVersion says that the steps were read from an agent with other ones.
var errVersion = errors.New("the steps were read from an agent of another version")

// step is one of cleaning or deployment, as Ironic names it.
type step struct {
	Interface string         `json:"interface"`
	Step      string         `json:"step"`
	Args      map[string]any `json:"args,omitempty"`
}

// offered is a step that the agent can execute. Erasing all of the disks takes hours, so that Ironic has to be configured for it.
type offered struct {
	step
	Priority int  `json:"priority"`
	Reboot   bool `json:"reboot_requested"`
	Abort    bool `json:"abortable"`
}

// params are those of all commands; each uses some of them.
type params struct {
	Step          step              `json:"step"`
	Node          nodeData          `json:"node"`
	CleanVersion  map[string]string `json:"clean_version"`
	DeployVersion map[string]string `json:"deploy_version"`
	Image         imageInfo         `json:"image_info"`
	Config        string            `json:"configdrive"`
	Boot          string            `json:"target_boot_mode"`
}

// nodeData is what of a node matters here.
type nodeData struct {
	Properties struct {
		Root disk.Hints   `json:"root_device"`
		Skip []disk.Hints `json:"skip_block_devices"`
	} `json:"properties"`
	Instance struct {
		Root disk.Hints `json:"root_device"`
	} `json:"instance_info"`
}

// imageInfo is an image, as Ironic describes it.
type imageInfo struct {
	URLs      []string          `json:"urls"`
	Format    string            `json:"disk_format"`
	Checksum  string            `json:"checksum"`
	Algorithm string            `json:"os_hash_algo"`
	Hash      string            `json:"os_hash_value"`
	Config    string            `json:"configdrive"`
	Proxies   map[string]string `json:"proxies"`
	// RootMB is set for images of a partition only.
	RootMB any `json:"root_mb"`
}

// Machine is what the agent does to the machine beside its disks.
type Machine interface {
	// Sync flushes what the kernel keeps in memory.
	Sync()
	// Logs are what the kernel said.
	Logs() []byte
}

// Ending is how the agent ends.
type Ending string

// Endings that Ironic can ask for.
const (
	Restart   Ending = "restart"
	SwitchOff Ending = "switch off"
)

// execute executes a command.
func (a *Agent) execute(ctx context.Context, name string, raw json.RawMessage) (any, error) {
	var p params
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, fmt.Errorf("the parameters of %s are not understood: %w", name, err)
		}
	}
	a.say("executing %s %s", name, p.Step.Step)
	result, err := a.carryOut(ctx, name, p)
	if err != nil {
		a.say("%s %s failed: %v", name, p.Step.Step, err)
	}
	return result, err
}

func (a *Agent) carryOut(ctx context.Context, name string, p params) (any, error) {
	switch name {
	case "clean.get_clean_steps":
		return steps("clean_steps", offered{step{Interface: "deploy", Step: eraseMetadata}, 10, false, true}, offered{step{Interface: "deploy", Step: eraseDevices}, 0, false, true}), nil
	case "deploy.get_deploy_steps":
		return steps("deploy_steps", offered{step{Interface: "deploy", Step: writeImage}, 0, false, false}, offered{step{Interface: "deploy", Step: eraseMetadata}, 0, false, false}), nil
	case "clean.execute_clean_step":
		if err := sameVersion(p.CleanVersion); err != nil {
			return nil, err
		}
		return done("clean", p.Step), a.step(ctx, p)
	case "deploy.execute_deploy_step":
		if err := sameVersion(p.DeployVersion); err != nil {
			return nil, err
		}
		return done("deploy", p.Step), a.step(ctx, p)
	case "standby.prepare_image":
		return "the image is on the disk", a.write(ctx, p.Image, p.Config, p.Node)
	case "standby.get_partition_uuids":
		return map[string]any{}, nil
	case "standby.sync":
		a.machine.Sync()
		return nil, nil
	case "standby.run_image", "standby.reboot":
		a.end(Restart)
	case "standby.power_off":
		a.end(SwitchOff)
	case "image.install_bootloader":
		return "The image is that of a whole disk, and brings its boot loader.", nil
	case "log.collect_system_logs":
		return a.logs.archive(a.machine.Logs())
	}
	return nil, nil
}

// sameVersion fails where Ironic read the steps from an agent with other ones. Without a version, it has read none.
func sameVersion(v map[string]string) error {
	if len(v) > 0 && !maps.Equal(v, managers) {
		return errVersion
	}
	return nil
}

func steps(name string, list ...offered) any {
	return map[string]any{name: map[string]any{"MusterRamdisk": list}, "hardware_manager_version": managers}
}

// done is the result of a step, by which Ironic knows that it is the one that it waits for. Its arguments, which can be secret, are not told.
func done(kind string, s step) map[string]any {
	s.Args = nil
	return map[string]any{kind + "_result": nil, kind + "_step": s}
}

func (a *Agent) step(ctx context.Context, p params) error {
	if p.Step.Interface != "deploy" {
		return fmt.Errorf("this ramdisk has no step %s of the interface %s", p.Step.Step, p.Step.Interface)
	}
	switch p.Step.Step {
	case eraseMetadata, eraseDevices:
		disks, err := a.erasable(p.Node)
		if err != nil {
			return err
		}
		if p.Step.Step == eraseMetadata {
			return disk.EraseMetadata(ctx, disks)
		}
		return disk.Erase(ctx, disks)
	case writeImage:
		var args params
		text, err := json.Marshal(p.Step.Args)
		if err == nil {
			err = json.Unmarshal(text, &args)
		}
		if err != nil {
			return fmt.Errorf("the arguments of %s are not understood: %w", writeImage, err)
		}
		return a.write(ctx, args.Image, args.Config, p.Node)
	}
	return fmt.Errorf("this ramdisk has no step %s", p.Step.Step)
}

// erasable are all disks but those that the node's property skip_block_devices names.
func (a *Agent) erasable(n nodeData) ([]disk.Disk, error) {
	disks, err := a.options.disks()
	if err != nil {
		return nil, err
	}
	for _, hints := range n.Properties.Skip {
		if len(hints) == 0 {
			return nil, errors.New("an entry of skip_block_devices is empty")
		}
		var bad error
		disks = slices.DeleteFunc(disks, func(d disk.Disk) bool {
			matches, err := d.Matches(hints)
			bad = errors.Join(bad, err)
			return matches
		})
		if bad != nil {
			return nil, bad
		}
	}
	return disks, nil
}

// write writes an image to the disk that the hints of the instance mean, or else those of the node.
func (a *Agent) write(ctx context.Context, info imageInfo, config string, n nodeData) error {
	if len(info.URLs) == 0 {
		return errors.New("there is no image")
	}
	if info.RootMB != nil {
		return errors.New("the image is that of a partition: this ramdisk writes images of whole disks")
	}
	disks, err := a.options.disks()
	if err != nil {
		return err
	}
	hints := n.Instance.Root
	if len(hints) == 0 {
		hints = n.Properties.Root
	}
	root, err := disk.Root(disks, hints)
	if err != nil {
		return err
	}
	image := disk.Image{URL: info.URLs[0], Format: strings.ToLower(info.Format), Algorithm: info.Algorithm, Checksum: info.Hash, Config: config}
	if image.Checksum == "" {
		image.Algorithm, image.Checksum = "", info.Checksum
	}
	if image.Config == "" {
		image.Config = info.Config
	}
	a.say("writing an image to %s", root.Name)
	return disk.Writer{Client: a.downloads(info.Proxies)}.Write(ctx, image, root)
}
