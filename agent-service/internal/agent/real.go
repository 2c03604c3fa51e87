// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/diskimage"
	"github.com/muster-io/muster/agent-service/internal/kubelet"
)

// Real is the machine that this process runs on.
type Real struct {
	// Client downloads images and asks registries.
	Client *http.Client
	// PullSecret are the credentials of registries, as a docker config.json; empty for none.
	PullSecret string
	// RestartCommand replaces the restart by the kernel; empty for that.
	RestartCommand []string
	// Sys is where the kernel tells of its devices: /sys.
	Sys string
	kubelet.Files
	// Log is what this agent said; nil for nothing.
	Log *tail
	// Program is the file that an upgrade replaces; empty for that of this process.
	Program string
	// HostID overrules the machine's own id; zero for that.
	HostID uuid.UUID
	// open replaces how disks are opened that are wiped; nil for the kernel's way.
	open func(name string) (blockDevice, error)
	// stop replaces how a device is stopped that is made of others; nil for the kernel's way.
	stop func(name string) error
}

// identities is the name space of host ids.
var identities = uuid.MustParse("6d757374-6572-5f68-8f73-74735f696473")

// dummies are serials that vendors forget to fill in.
var dummies = []string{
	"", "0", "none", "n/a", "na", "null", "default string", "not specified", "not applicable", "not available", "system serial number", "to be filled by o.e.m.", "to be filled by oem",
	"o.e.m.", "oem", "unknown", "invalid", "base board serial number", "chassis serial number", "serial", "123456789", "0123456789", "1234567890",
	"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "03000200-0400-0500-0006-000700080009", "12345678-1234-5678-90ab-cddeefaabbcc",
}

// genuine is what firmware says, in one spelling; empty if it says nothing.
func genuine(serial string) string {
	plain := strings.ToLower(strings.TrimSpace(serial))
	if slices.Contains(dummies, plain) || strings.Trim(plain, "0. -") == "" {
		return ""
	}
	return plain
}

// identify makes a host id: from all that firmware says of the machine together with the lowest burnt-in network address. Two boards with one serial differ
// in their addresses, and an address alone is enough where serials are dummies.
func identify(systemID, boardSerial string, macs []string) (uuid.UUID, error) {
	parts := []string{genuine(systemID), genuine(boardSerial), ""}
	if len(macs) > 0 {
		parts[2] = slices.Min(macs)
	}
	if strings.Join(parts, "") == "" {
		return uuid.UUID{}, fmt.Errorf("this machine has neither a serial nor a network address; give it a host id")
	}
	return uuid.NewSHA1(identities, []byte(strings.Join(parts, "|"))), nil
}

// Identity implements Machine.
func (m *Real) Identity(context.Context) (Identity, error) {
	macs, parts := m.burntIn(), []string{}
	parts = append(parts, macs...)
	for _, disk := range m.disks() {
		parts = append(parts, disk.Serial+disk.WWN)
	}
	slices.Sort(parts)
	sum := sha256.Sum256([]byte(strings.Join(parts, "|")))
	var err error
	identity := Identity{HostID: m.HostID, Fingerprint: hex.EncodeToString(sum[:16]), BootID: content("/proc/sys/kernel/random/boot_id")}
	if identity.HostID == (uuid.UUID{}) {
		identity.HostID, err = identify(m.dmi("product_uuid"), m.dmi("board_serial"), macs)
	}
	return identity, err
}

func (m *Real) dmi(name string) string {
	return content(filepath.Join(m.Sys, "class/dmi/id", name))
}

// burntIn are the permanent addresses of network cards: neither bridges nor bonds, which borrow them.
func (m *Real) burntIn() []string {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var macs []string
	for _, i := range interfaces {
		if _, err := os.Stat(filepath.Join(m.Sys, "class/net", i.Name, "device")); err == nil && len(i.HardwareAddr) == 6 {
			macs = append(macs, m.permanent(i))
		}
	}
	slices.Sort(macs)
	return macs
}

// permanent is the card's own address, also while a bond lends it that of another card.
func (m *Real) permanent(i net.Interface) string {
	return first(content(filepath.Join(m.Sys, "class/net", i.Name, "bonding_slave/perm_hwaddr")), i.HardwareAddr.String())
}

func content(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Do implements Machine.
func (m *Real) Do(ctx context.Context, step api.Step) (any, error) {
	switch step.StepType {
	case api.StepTypeInventory:
		return m.Inventory(ctx)
	case api.StepTypeNtpSynchronizer:
		return timeSources(ctx, step)
	case api.StepTypeConnectivityCheck:
		return reach(ctx, step)
	case api.StepTypeDomainResolution:
		return resolve(ctx, step)
	case api.StepTypeAPIVipConnectivityCheck:
		return reachAPI(ctx, step)
	case api.StepTypeInstallationDiskSpeedCheck:
		return diskSpeed(ctx, step)
	case api.StepTypeContainerImageAvailability:
		return m.available(ctx, step)
	case api.StepTypeWipeDisk:
		return m.wipe(ctx, step)
	default:
		return nil, fmt.Errorf("this agent does not know the step %s", step.StepType)
	}
}

// Write implements Machine.
func (m *Real) Write(ctx context.Context, job diskimage.Job, progress func(percent int)) error {
	return diskimage.Install(ctx, m.Client, job, progress)
}

// Restart implements Machine.
func (m *Real) Restart(ctx context.Context) error {
	syscall.Sync()
	if len(m.RestartCommand) > 0 {
		if output, err := exec.CommandContext(ctx, m.RestartCommand[0], m.RestartCommand[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", m.RestartCommand[0], err, output)
		}
		return nil
	}
	return syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
}
