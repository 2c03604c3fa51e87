// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostplan

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Understand reads replies that are checks. A nil function has nothing to keep.
func Understand(reply agentproto.StepReply) (func(*domain.Host), error) {
	invalid := func() error {
		return domain.Refuse(domain.Invalid, "ReplyInvalid", "the reply to step %s cannot be read", domain.Truncate(string(reply.Type), 64))
	}
	if reply.ExitCode != 0 && reply.Type != agentproto.StepDiskSpeed && reply.Type != agentproto.StepImageAvailability && reply.Type != agentproto.StepAPIConnectivity {
		return nil, nil
	}
	switch reply.Type {
	case agentproto.StepNTP:
		return understandNTP(reply.Output, invalid)
	case agentproto.StepConnectivity:
		return understandConnectivity(reply.Output, invalid)
	case agentproto.StepDomainResolution:
		return understandDomains(reply.Output, invalid)
	case agentproto.StepAPIConnectivity:
		return understandAPI(reply, invalid)
	case agentproto.StepDiskSpeed:
		return understandDiskSpeed(reply, invalid)
	case agentproto.StepImageAvailability:
		return understandImages(reply, invalid)
	default:
		return nil, nil
	}
}

// podmanFailed is the exit code of podman where it could not start a container.
const podmanFailed = 125

// AlreadyRuns is true for a reply that says nothing but that the agent is still at the step. Agents of assisted-service run each step in a container of a fixed name, and
// begin it again when they are asked again: by another replica, or after a restart of the service.
func AlreadyRuns(reply agentproto.StepReply, h *domain.Host) bool {
	_, name, named := strings.Cut(reply.Error, "the container name ")
	return named && reply.ExitCode == podmanFailed && h.Assisted() && strings.Contains(name, "is already in use")
}

func understandNTP(output string, invalid func() error) (func(*domain.Host), error) {
	var report agentproto.NTPReply
	if json.Unmarshal([]byte(output), &report) != nil {
		return nil, invalid()
	}
	slices.SortFunc(report.Sources, func(a, b agentproto.NTPSource) int { return strings.Compare(a.Name, b.Name) })
	var sources []validate.NTPSource
	for _, source := range report.Sources[:min(len(report.Sources), 32)] {
		sources = append(sources, validate.NTPSource{Name: domain.Truncate(source.Name, 253), State: domain.Truncate(source.State, 32)})
	}
	return func(h *domain.Host) { h.NTPSources = sources }, nil
}

func understandConnectivity(output string, invalid func() error) (func(*domain.Host), error) {
	var report agentproto.ConnectivityReply
	if json.Unmarshal([]byte(output), &report) != nil {
		return nil, invalid()
	}
	var unreachable, short []string
	slow, lossy := map[string]int{}, map[string]int{}
	for _, host := range report.Hosts[:min(len(report.Hosts), maxPeers)] {
		id := domain.Truncate(host.HostID, 36)
		if !slices.ContainsFunc(slices.Concat(host.L3, host.L2), func(r agentproto.Reached) bool { return r.Successful }) {
			unreachable = append(unreachable, id)
		}
		if slices.Contains(host.MTU, agentproto.FullSize{}) {
			short = append(short, id)
		}
		// The best way counts. Figures that suffice for every role are not kept, so that hosts do not change with each measurement.
		answered := slices.DeleteFunc(slices.Clone(host.L3), func(r agentproto.Reached) bool { return !r.Successful })
		if len(answered) == 0 {
			continue
		}
		best := slices.MinFunc(answered, func(a, b agentproto.Reached) int {
			return cmp.Or(cmp.Compare(a.Loss, b.Loss), cmp.Compare(a.RTT, b.RTT))
		})
		if validate.TooSlow(best.RTT) {
			slow[id] = int(best.RTT+9) / 10 * 10
		}
		if best.Loss > 0 {
			lossy[id] = int(best.Loss + 0.999)
		}
	}
	slices.Sort(unreachable)
	slices.Sort(short)
	return func(h *domain.Host) {
		h.Checks.Connected, h.Checks.Unreachable, h.Checks.ShortMTU, h.Checks.Slow, h.Checks.Lossy = true, unreachable, short, orNil(slow), orNil(lossy)
	}, nil
}

// orNil is nil for an empty map, as it is when it was read from the store.
func orNil(m map[string]int) map[string]int {
	if len(m) == 0 {
		return nil
	}
	return m
}

func understandDomains(output string, invalid func() error) (func(*domain.Host), error) {
	var report agentproto.DomainsReply
	if json.Unmarshal([]byte(output), &report) != nil {
		return nil, invalid()
	}
	domains := map[string]bool{}
	for _, r := range report.Resolutions {
		name, _, _ := strings.Cut(r.Name, ".")
		short, known := map[string]string{"api": "api", "api-int": "api-int", "console-openshift-console": "apps", "validateNoWildcardDNS": "wildcard"}[name]
		if known {
			domains[short] = len(r.IPv4)+len(r.IPv6) > 0
		}
	}
	return func(h *domain.Host) { h.Checks.Domains = domains }, nil
}

// understandAPI keeps whether the host reaches the API of the cluster. An agent that does not know the step fails it: it does not block the host.
func understandAPI(reply agentproto.StepReply, invalid func() error) (func(*domain.Host), error) {
	var report agentproto.APIReply
	if reply.ExitCode == 0 && json.Unmarshal([]byte(reply.Output), &report) != nil {
		return nil, invalid()
	}
	check, detail := validate.Passed, ""
	if reply.ExitCode == 0 && !report.Success {
		check, detail = validate.Refused, domain.Truncate(domain.WithoutSecrets(report.Error), 256)
	}
	return func(h *domain.Host) { h.Checks.API, h.Checks.APIDetail = check, detail }, nil
}

// SlowestSync is how long a disk may take to write through, in milliseconds.
const SlowestSync = 50

func understandDiskSpeed(reply agentproto.StepReply, invalid func() error) (func(*domain.Host), error) {
	var report agentproto.DiskReply
	if reply.ExitCode == 0 && json.Unmarshal([]byte(reply.Output), &report) != nil {
		return nil, invalid()
	}
	check := validate.Passed
	if reply.ExitCode != 0 || report.Sync > SlowestSync {
		check = validate.Refused
	}
	return func(h *domain.Host) {
		if h.State == lifecycle.PreparingForInstallation {
			h.Checks.DiskSpeed = check
		}
	}, nil
}

func understandImages(reply agentproto.StepReply, invalid func() error) (func(*domain.Host), error) {
	var report agentproto.ImagesReply
	if reply.ExitCode == 0 && json.Unmarshal([]byte(reply.Output), &report) != nil {
		return nil, invalid()
	}
	check, detail := validate.Passed, ""
	if reply.ExitCode != 0 {
		check, detail = validate.Refused, domain.Truncate(domain.WithoutSecrets(reply.Error), 256)
	}
	for _, image := range report.Images {
		if image.Result == agentproto.Unavailable {
			check, detail = validate.Refused, domain.Truncate(domain.WithoutSecrets(image.Name), 256)
		}
	}
	return func(h *domain.Host) {
		switch {
		case IsOther(reply, h):
		case h.State == lifecycle.PreparingForInstallation:
			h.Images, h.ImagesDetail = check, detail
		case h.ClusterID == "" || lifecycle.Idle(h.State):
			h.Checks.Registry, h.Checks.RegistryDetail = check, detail
		}
	}, nil
}

// OtherMachine is true for an inventory that is of another machine: no network card of one is in the other. A machine that changes all its cards has to boot, which forgets the former ones.
func OtherMachine(known, reported hardware.Summary) bool {
	return len(known.MACAddresses) > 0 && len(reported.MACAddresses) > 0 &&
		!slices.ContainsFunc(reported.MACAddresses, func(mac string) bool { return slices.Contains(known.MACAddresses, mac) })
}
