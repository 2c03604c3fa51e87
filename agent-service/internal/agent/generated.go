// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/diskimage"
	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// Generated is a machine that only exists on the wire. The same seed and number make the same machine.
type Generated struct {
	// Seed tells fleets apart.
	Seed   string
	Number int
	// Client downloads images, as a real machine does.
	Client *http.Client
	// Connection is how its installed system reports that it is up.
	Connection *Connection
	// PowerOn is the name of the moment at which it was switched on: the same machine boots another time under another name.
	PowerOn string
	// BootTime is how long a restart takes.
	BootTime time.Duration
	// Reside makes its installed system ask for instructions, if it reads ignition.
	Reside bool
	// FirstBootDir is where the first-boot data of the last installation is kept, as <host id>.ign; empty for nowhere.
	FirstBootDir string

	boots     int
	installed string
}

// InstalledToken implements Resident.
func (g *Generated) InstalledToken() string { return g.installed }

// Load implements Machine: it downloads and checks, and keeps nothing.
func (g *Generated) Load(ctx context.Context, wanted agentproto.BootArtifactsArgs) error {
	return errors.Join(fetch(ctx, g.Client, wanted.KernelURL, wanted.KernelSHA256, io.Discard), fetch(ctx, g.Client, wanted.InitrdURL, wanted.InitrdSHA256, io.Discard))
}

// Boot implements Machine.
func (g *Generated) Boot(ctx context.Context) error {
	g.boots++
	g.installed = ""
	return pause(ctx, g.BootTime)
}

// hostPath is where first-boot data says to the installed system what host it is.
const hostPath = "/etc/muster/host.json"

// tokenOf is the token in first-boot data of ignition, empty for none.
func tokenOf(firstBoot []byte) string {
	var config struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
	}
	if json.Unmarshal(firstBoot, &config) != nil {
		return ""
	}
	for _, file := range config.Storage.Files {
		content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(file.Contents.Source, "data:;base64,"))
		var host struct{ Token string }
		if file.Path == hostPath && err == nil && json.Unmarshal(content, &host) == nil {
			return host.Token
		}
	}
	return ""
}

// HostID is the machine's id.
func (g *Generated) HostID() uuid.UUID {
	return uuid.NewSHA1(identities, fmt.Appendf(nil, "generated|%s|%d", g.Seed, g.Number))
}

// Identity implements Machine.
func (g *Generated) Identity(context.Context) (Identity, error) {
	id := g.HostID()
	return Identity{HostID: id, Fingerprint: strings.ReplaceAll(id.String(), "-", ""), BootID: fmt.Sprintf("%s-%s%d", id, g.PowerOn, g.boots)}, nil
}

// Inventory is of a small server with two disks.
func (g *Generated) Inventory() *hardware.Inventory {
	id, n := g.HostID(), g.Number
	disk := func(i int, size int64) hardware.Disk {
		serial := fmt.Sprintf("%x-%d", id[:6], i)
		return hardware.Disk{
			ID: "/dev/disk/by-id/nvme-" + serial, Name: fmt.Sprintf("nvme%dn1", i), Path: fmt.Sprintf("/dev/nvme%dn1", i), ByID: "/dev/disk/by-id/nvme-" + serial, DriveType: "SSD",
			SizeBytes: size, Serial: serial, Model: "Generated", HasUUID: true, InstallationEligibility: hardware.Eligibility{Eligible: true},
		}
	}
	return &hardware.Inventory{
		Hostname: fmt.Sprintf("host-%s-%05d", g.Seed, n), Boot: hardware.Boot{CurrentBootMode: "uefi"},
		CPU:    hardware.CPU{Architecture: "x86_64", Count: 16, ModelName: "Generated", Frequency: 2400},
		Memory: hardware.Memory{PhysicalBytes: 64 << 30, UsableBytes: 63 << 30}, Disks: []hardware.Disk{disk(0, 480_000_000_000), disk(1, 960_000_000_000)},
		Interfaces: []hardware.Interface{{
			Name: "eno1", MACAddress: fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", id[0], id[1], id[2], id[3]), MTU: 1500, HasCarrier: true, SpeedMbps: 25000, Type: "physical",
			Flags: []string{"up", "broadcast", "multicast"}, IPV4Addresses: []string{fmt.Sprintf("10.%d.%d.%d/8", n>>16&255, n>>8&255, n&255)}, IPV6Addresses: []string{},
		}},
		Routes:       []hardware.Route{{Destination: "0.0.0.0", Gateway: "10.255.255.254", Interface: "eno1", Family: familyIPv4}},
		SystemVendor: hardware.SystemVendor{Manufacturer: "Muster", ProductName: "Generated", SerialNumber: fmt.Sprintf("%x", id[:6])}, TPMVersion: "2.0", Timestamp: time.Now().Unix(),
	}
}

// Do implements Machine: everything that is asked for works.
func (g *Generated) Do(_ context.Context, step api.Step) (any, error) {
	switch step.StepType {
	case api.StepTypeInventory:
		return g.Inventory(), nil
	case api.StepTypeNtpSynchronizer:
		return agentproto.NTPReply{Sources: []agentproto.NTPSource{{Name: "time.example.com", State: synchronized}}}, nil
	case api.StepTypeConnectivityCheck:
		return g.reach(step)
	case api.StepTypeDomainResolution:
		return g.resolve(step)
	case api.StepTypeAPIVipConnectivityCheck:
		return agentproto.APIReply{Success: true}, nil
	case api.StepTypeInstallationDiskSpeedCheck:
		return agentproto.DiskReply{Sync: 1}, nil
	case api.StepTypeContainerImageAvailability:
		return agentproto.ImagesReply{Images: []agentproto.Availability{}}, nil
	case api.StepTypeWipeDisk:
		return g.wipe(step)
	default:
		return nil, nil
	}
}

func (g *Generated) reach(step api.Step) (any, error) {
	var peers []agentproto.Peer
	if err := arguments(step, &peers); err != nil {
		return nil, err
	}
	hosts := []agentproto.RemoteHost{}
	for _, p := range peers {
		hosts = append(hosts, agentproto.RemoteHost{HostID: p.HostID, L3: []agentproto.Reached{{Successful: true, RTT: 0.2}}})
	}
	return agentproto.ConnectivityReply{Hosts: hosts}, nil
}

// wipe says that the disks are wiped that the machine has.
func (g *Generated) wipe(step api.Step) (any, error) {
	var wanted agentproto.WipeArgs
	if err := arguments(step, &wanted); err != nil {
		return nil, err
	}
	for _, one := range wanted.Disks {
		if !slices.ContainsFunc(g.Inventory().Disks, func(d hardware.Disk) bool { return d.Identity().Is(hardware.DiskIdentity(one)) }) {
			return nil, fmt.Errorf("there is no %s", hardware.DiskIdentity(one))
		}
	}
	return agentproto.WipeReply(wanted), nil
}

func (g *Generated) resolve(step api.Step) (any, error) {
	var request agentproto.DomainsArgs
	if err := arguments(step, &request); err != nil {
		return nil, err
	}
	found := []agentproto.Resolution{}
	for _, domain := range request.Domains {
		r := agentproto.Resolution{Name: domain.Name, IPv4: []string{"10.255.0.1"}, IPv6: []string{}}
		if strings.HasPrefix(domain.Name, "validateNoWildcardDNS") {
			r.IPv4 = []string{}
		}
		found = append(found, r)
	}
	return agentproto.DomainsReply{Resolutions: found}, nil
}

// nowhere is the disk of a generated machine.
type nowhere struct{}

// WriteAt implements diskimage.Target.
func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// Sync implements diskimage.Target.
func (nowhere) Sync() error { return nil }

// Close implements diskimage.Target.
func (nowhere) Close() error { return nil }

// Write implements Machine: the image is downloaded, unpacked and checked, and kept nowhere.
func (g *Generated) Write(ctx context.Context, job diskimage.Job, progress func(percent int)) error {
	if g.FirstBootDir != "" {
		if err := os.WriteFile(filepath.Join(g.FirstBootDir, g.HostID().String()+".ign"), job.FirstBoot, 0o600); err != nil {
			return fmt.Errorf("keeping the first-boot data: %w", err)
		}
	}
	if g.Reside {
		g.installed = tokenOf(job.FirstBoot)
	}
	return diskimage.Write(ctx, g.Client, job.Image, nowhere{}, progress)
}

// Replace implements Machine: a generated machine has no program.
func (g *Generated) Replace(context.Context, io.Reader, agentproto.UpgradeArgs, func() error) error {
	return errors.New("generated machines are not upgraded")
}

// Restart implements Machine: the installed system comes up, reports and is done.
func (g *Generated) Restart(ctx context.Context) error {
	g.boots++
	if err := pause(ctx, g.BootTime); err != nil {
		return err
	}
	for _, stage := range []api.HostStage{api.HostStageConfiguring, api.HostStageJoined, api.HostStageDone} {
		// A refused upload is of no use any more; the system is there all the same.
		err := insist(ctx, func() error { return g.Connection.Progress(ctx, g.HostID(), stage, "") })
		if status := statusOf(err); err != nil && status != http.StatusConflict && status != http.StatusNotFound && status != http.StatusUnauthorized {
			return err
		}
	}
	return nil
}
