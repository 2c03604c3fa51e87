// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeinit is the first process of a node image. In the RAM disk it finds the root file system and starts itself
// from there. In the system it mounts what the kernel has, makes the file system for data, puts the first-boot data in
// place, gets addresses, sets the clock, and supervises containerd, the kubelet, kube-proxy and the agent, and on one machine of some clusters the control plane, until the machine is to stop.
package nodeinit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/kubelet"
	"github.com/muster-io/muster/agent-service/internal/liveinit"
	"github.com/muster-io/muster/agent-service/internal/supervise"
)

const (
	// modulesPath lists drivers in the order in which they can be loaded: in the RAM disk and in the system.
	modulesPath = "/usr/lib/muster/modules"
	// initPath is this program in the system.
	initPath    = "/usr/sbin/node-init"
	profilePath = "/etc/NetworkManager/system-connections"
	// diskPatience is how long the kernel has to find the disk, addressPatience how long a network has to give an address.
	diskPatience    = 2 * time.Minute
	addressPatience = time.Minute
)

// Run never returns: the kernel panics without its first process.
func Run() {
	if os.Args[0] == "/init" {
		say("cannot start the system: %v", ramDisk())
		await(time.Minute)
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	}
	stop := shutdown{}
	ctx := stop.watch(context.Background()) //nolint:forbidigo // there is no caller
	system(ctx)
	stop.finish()
}

func say(format string, values ...any) {
	uptime, _ := os.ReadFile("/proc/uptime")
	seconds, _, _ := strings.Cut(string(uptime), " ")
	fmt.Printf("node %s: "+format+"\n", append([]any{seconds}, values...)...)
}

// await is for what the kernel does not tell.
func await(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // see there

// system runs the node until ctx is done.
func system(ctx context.Context) {
	say("the system starts")
	for _, step := range []func() error{systemMounts, drivers, parameters, data, firstBoot, identity, trust} {
		if err := step(); err != nil {
			say("%v", err)
		}
	}
	n := node{reaper: &supervise.Reaper{}, configured: make(chan string, 16)}
	var err error
	if n.values, n.joins, err = joinValues(); err != nil {
		say("this machine cannot join a cluster: %v", err)
		n.refusal = err.Error()
	}
	if n.plane, err = controlPlane(); err != nil {
		say("this machine cannot run the control plane: %v", err)
		n.plane, n.joins, n.refusal = nil, false, err.Error()
	}
	if err := hostname(n.values.NodeName); err != nil {
		say("%v", err)
	}
	if n.joins {
		if err := n.configure(); err != nil {
			say("%v", err)
		}
	}
	go liveinit.ConfigureInstalled(profilePath, n.configured)
	go liveinit.KeepClock(timeServers(hostPath))
	go n.reaper.Reap(context.WithoutCancel(ctx))
	if err := (supervise.Supervisor{Programs: n.programs(), Say: say}).Run(ctx); err != nil {
		say("%v", err)
	}
}

// timeServers are those that a file with the facts of this host names. A file that cannot be read names none: the agent says what is wrong with it.
func timeServers(path string) []string {
	var host struct {
		NTPSources string `json:"ntp_sources"`
	}
	content, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(content, &host) != nil {
		return nil
	}
	return liveinit.TimeServers(host.NTPSources)
}

// drivers loads those of the system; further ones are loaded by the kernel, which runs modprobe.
func drivers() error { return liveinit.LoadModules(modulesPath) }

// joinValues are false for a machine that is to join nothing.
func joinValues() (join.Values, bool, error) {
	content, err := os.ReadFile(join.Path)
	if errors.Is(err, os.ErrNotExist) {
		say("there is no %s: this machine joins no cluster", join.Path)
		return join.Values{}, false, nil
	}
	if err != nil {
		return join.Values{}, false, err
	}
	values, err := join.Read(content)
	return values, err == nil, err
}

// controlPlane is nil for a machine that is to run none.
func controlPlane() (*join.ControlPlane, error) {
	content, err := os.ReadFile(join.ControlPlanePath)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return join.ReadControlPlane(content)
}

// hostname is what first-boot data says, else the node's.
func hostname(node string) error {
	name, err := os.ReadFile("/etc/hostname")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if text := strings.TrimSpace(string(name)); text != "" {
		return unix.Sethostname([]byte(text))
	}
	if node == "" {
		return nil
	}
	return unix.Sethostname([]byte(node))
}

// firstBoot puts the files of the first-boot data in place, and deletes it: it holds secrets.
func firstBoot() error {
	content, err := os.ReadFile(firstBootPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the first-boot data: %w", err)
	}
	files, err := liveinit.Files(content)
	if err != nil {
		return err
	}
	if err := files.Write(); err != nil {
		return fmt.Errorf("writing the files of the first-boot data: %w", err)
	}
	unix.Sync()
	say("the first-boot data has %d files", len(files))
	return kubelet.Erase(firstBootPath)
}

// trust makes a bundle of the image's certificates and those of the first-boot data.
func trust() error {
	anchors, err := filepath.Glob("/etc/pki/ca-trust/source/anchors/*.pem")
	if err != nil || len(anchors) == 0 {
		return err
	}
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	all, err := os.ReadFile("/usr/share/muster/ca-certificates.crt")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, anchor := range anchors {
		content, err := os.ReadFile(anchor)
		if err != nil {
			return err
		}
		all = append(append(all, content...), '\n')
	}
	return os.WriteFile(bundle, all, 0o644) //nolint:gosec // certificates are public
}
