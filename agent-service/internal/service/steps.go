// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"hash/maphash"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/hostcache"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// maxPeers is how many hosts of its cluster a host tries to reach.
const maxPeers = 256

// periods are how often a step is asked for again while nothing changes, in poll intervals.
var periods = map[agentproto.StepType]time.Duration{
	agentproto.StepInventory: 1, agentproto.StepNTP: 1, agentproto.StepConnectivity: 1, agentproto.StepDomainResolution: 5, agentproto.StepAPIConnectivity: 5, agentproto.StepDiskSpeed: 1, agentproto.StepImageAvailability: 10, agentproto.StepInstall: 1, agentproto.StepStopInstallation: 5,
	agentproto.StepBootArtifacts: 1, agentproto.StepRebootForReclaim: 1, agentproto.StepLogsGather: 60, agentproto.StepUpgradeAgent: 10,
}

// asked are the steps of each state.
var asked = map[lifecycle.State][]agentproto.StepType{
	lifecycle.DiscoveringUnbound: {agentproto.StepInventory, agentproto.StepNTP, agentproto.StepImageAvailability, agentproto.StepUpgradeAgent}, lifecycle.InsufficientUnbound: {agentproto.StepInventory, agentproto.StepNTP, agentproto.StepImageAvailability, agentproto.StepUpgradeAgent},
	lifecycle.KnownUnbound: {agentproto.StepInventory, agentproto.StepNTP, agentproto.StepImageAvailability, agentproto.StepUpgradeAgent}, lifecycle.DisconnectedUnbound: {agentproto.StepInventory},
	lifecycle.Unbinding: {agentproto.StepInventory}, lifecycle.Binding: {agentproto.StepInventory}, lifecycle.Disconnected: {agentproto.StepInventory},
	lifecycle.Discovering:              {agentproto.StepInventory, agentproto.StepNTP, agentproto.StepConnectivity, agentproto.StepDomainResolution, agentproto.StepAPIConnectivity, agentproto.StepImageAvailability, agentproto.StepUpgradeAgent},
	lifecycle.Insufficient:             {agentproto.StepInventory, agentproto.StepNTP, agentproto.StepConnectivity, agentproto.StepDomainResolution, agentproto.StepAPIConnectivity, agentproto.StepImageAvailability, agentproto.StepUpgradeAgent},
	lifecycle.Known:                    {agentproto.StepInventory, agentproto.StepNTP, agentproto.StepConnectivity, agentproto.StepDomainResolution, agentproto.StepAPIConnectivity, agentproto.StepImageAvailability, agentproto.StepUpgradeAgent},
	lifecycle.PreparingFailed:          {agentproto.StepInventory, agentproto.StepNTP, agentproto.StepConnectivity},
	lifecycle.PreparingForInstallation: {agentproto.StepDiskSpeed, agentproto.StepImageAvailability},
	lifecycle.Installing:               {agentproto.StepInstall},
	lifecycle.Failed:                   {agentproto.StepLogsGather, agentproto.StepStopInstallation},
	lifecycle.Cancelled:                {agentproto.StepLogsGather, agentproto.StepStopInstallation},
	// An agent that still polls may be writing.
	lifecycle.ResettingPendingUserAction: {agentproto.StepStopInstallation}, lifecycle.UnbindingPendingUserAction: {agentproto.StepStopInstallation},
	lifecycle.Reclaiming: {agentproto.StepBootArtifacts}, lifecycle.ReclaimingRebooting: {agentproto.StepRebootForReclaim},
}

// situation is what instructions are made for: an agent that was told about another one has something to do. A state that was left and entered again is another.
func situation(h *domain.Host) string {
	return strings.Join([]string{string(h.State), strconv.FormatInt(h.StateUpdatedAt.UnixNano(), 36), h.ClusterID, h.Role, h.InstallationDiskID, h.InstallationDiskPath}, "|")
}

// instruct says what the agent has to do; due is true where it must know now.
func (s *Service) instruct(ctx context.Context, e *hostcache.Entry, key domain.HostKey) (answer Instructions, due bool, err error) {
	h, types, news := e.Due(
		func(h *domain.Host) (string, []agentproto.StepType) { return situation(h), asked[h.State] },
		func(t agentproto.StepType) time.Duration { return periods[t] * s.PollInterval },
	)
	answer = Instructions{NextSeconds: 1, Revision: h.Revision}
	var made []agentproto.StepType
	for _, t := range types {
		arguments, wanted, err := s.arguments(ctx, h, t)
		if err != nil {
			return answer, false, err
		}
		made = append(made, t)
		if wanted {
			answer.Steps = append(answer.Steps, agentproto.Step{Type: t, ID: stepID(key, t, about(h, t)), Args: arguments})
		}
	}
	if !e.Asked(h, situation(h), made) {
		return answer, false, nil // it changed meanwhile: look again rather than tell what is past
	}
	return answer, news || len(answer.Steps) > 0, nil
}

func stepID(key domain.HostKey, t agentproto.StepType, about string) string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(key.String() + "|" + about))
	return string(t) + "-" + hex.EncodeToString(sum.Sum(nil))[:8]
}

// arguments are those of a step; wanted is false where it has nothing to look at.
func (s *Service) arguments(ctx context.Context, h *domain.Host, t agentproto.StepType) (arguments []string, wanted bool, err error) {
	switch t {
	case agentproto.StepInventory:
		return []string{h.HostID}, true, nil
	case agentproto.StepNTP:
		return s.ntpArguments(ctx, h)
	case agentproto.StepConnectivity:
		peers := s.peers(h)
		return []string{agentproto.Argument(peers)}, len(peers) > 0, nil
	case agentproto.StepUpgradeAgent:
		return s.upgradeArguments(h)
	case agentproto.StepDomainResolution, agentproto.StepAPIConnectivity, agentproto.StepInstall, agentproto.StepImageAvailability, agentproto.StepDiskSpeed, agentproto.StepLogsGather:
		return s.clusterArguments(ctx, h, t)
	default:
		return []string{}, true, nil
	}
}

// upgradeArguments are for agents of this service that are older than the one that it has.
func (s *Service) upgradeArguments(h *domain.Host) ([]string, bool, error) {
	if h.Assisted() || !newer(s.AgentVersion, h.AgentVersion) {
		return nil, false, nil
	}
	architecture := cmp.Or(h.Summary.CPUArchitecture, "x86_64")
	sum, err := s.AgentSum(architecture)
	if err != nil || sum == "" {
		return nil, false, err
	}
	return []string{agentproto.Argument(agentproto.UpgradeArgs{Version: s.AgentVersion, Architecture: architecture, SHA256: sum})}, true, nil
}

// newer compares releases; what is no release, such as what developers build, is neither newer nor older.
func newer(one, other string) bool {
	a, err := version.ParseSemantic(one)
	if err != nil {
		return false
	}
	b, err := version.ParseSemantic(other)
	return err == nil && b.LessThan(a)
}

func (s *Service) ntpArguments(ctx context.Context, h *domain.Host) ([]string, bool, error) {
	e, err := s.knownInfraEnv(ctx, h.InfraEnvID)
	if err != nil {
		return nil, false, err
	}
	return []string{agentproto.Argument(agentproto.NTPArgs{Sources: cmp.Or(e.NTPSources, e.AdditionalNTPSources)})}, true, nil
}

func (s *Service) peers(h *domain.Host) []agentproto.Peer {
	var peers []agentproto.Peer
	for _, other := range s.hosts.OfCluster(h.ClusterID) {
		if other.HostKey == h.HostKey || len(peers) == maxPeers {
			continue
		}
		nic := agentproto.PeerNIC{}
		for _, a := range other.Summary.Addresses {
			if prefix, err := netip.ParsePrefix(a); err == nil {
				nic.IPAddresses = append(nic.IPAddresses, prefix.Addr().String())
			}
		}
		if len(other.Summary.MACAddresses) > 0 {
			nic.MAC = other.Summary.MACAddresses[0]
		}
		if len(nic.IPAddresses) > 0 {
			peers = append(peers, agentproto.Peer{HostID: other.HostID, NICs: []agentproto.PeerNIC{nic}})
		}
	}
	slices.SortFunc(peers, func(a, b agentproto.Peer) int { return strings.Compare(a.HostID, b.HostID) })
	return peers
}

// clusterArguments are those of steps that look at the cluster, or before that at the registry.
func (s *Service) clusterArguments(ctx context.Context, h *domain.Host, t agentproto.StepType) ([]string, bool, error) {
	if h.ClusterID == "" || t == agentproto.StepImageAvailability && h.State != lifecycle.PreparingForInstallation {
		return []string{agentproto.Argument(agentproto.ImagesArgs{Images: s.RegistryImages, Timeout: 60})}, t == agentproto.StepImageAvailability && len(s.RegistryImages) > 0, nil
	}
	c, err := s.knownCluster(ctx, h.ClusterID)
	if err != nil {
		return nil, false, err
	}
	if h.Assisted() {
		if arguments, own := s.assistedArguments(h, c, t); own {
			return arguments, true, nil
		}
	}
	switch t {
	case agentproto.StepInstall:
		argument, err := s.installStep(ctx, h, c)
		return []string{argument}, err == nil, err
	case agentproto.StepLogsGather:
		return []string{agentproto.Argument(s.logsArgs(h, c))}, true, nil
	case agentproto.StepDiskSpeed:
		disk, _ := validate.Disk(s.subject(h), s.Minimums)
		return []string{agentproto.Argument(agentproto.DiskArgs{Path: disk.Path})}, true, nil
	case agentproto.StepImageAvailability:
		image, err := s.image(c, h)
		return []string{agentproto.Argument(agentproto.ImagesArgs{Images: []string{image.URL}, Timeout: 60})}, err == nil, err
	case agentproto.StepAPIConnectivity:
		if !h.DayTwo || len(c.APIVIPs) == 0 {
			return nil, false, nil
		}
		return []string{agentproto.Argument(agentproto.APIArgs{URL: "https://" + net.JoinHostPort(c.APIVIPs[0], "6443") + "/readyz"})}, true, nil
	default:
		if c.BaseDNSDomain == "" {
			return nil, false, nil
		}
		var names agentproto.DomainsArgs
		for _, name := range []string{"api", "api-int", "console-openshift-console.apps", "validateNoWildcardDNS"} {
			names.Domains = append(names.Domains, agentproto.Domain{Name: name + "." + c.Name + "." + c.BaseDNSDomain})
		}
		return []string{agentproto.Argument(names)}, true, nil
	}
}

// ReportStep implements Agents.
func (s *Service) ReportStep(ctx context.Context, key domain.HostKey, reply agentproto.StepReply) error {
	e, err := s.entry(ctx, key)
	if err != nil {
		return err
	}
	e.Touch()
	if len(reply.Output) > hardware.MaxReadBytes {
		return domain.Refuse(domain.Invalid, "ReplyTooLarge", "a reply has at most %d bytes", hardware.MaxReadBytes)
	}
	sum := sumOf(reply)
	h := e.Host()
	if isOther(reply, h) {
		e.AskAgainFor(reply.Type) // the agent was at this one when it was told about the next
		return nil
	}
	same := e.Replied(reply.Type, sum) && h.MediaConnected && h.Twin == "" // a good reply after a bad one says that the medium is back
	if same && reply.Type != agentproto.StepInstall {
		return nil
	}
	if err := s.take(ctx, h, key, reply); err != nil {
		return err
	}
	// An inventory that was forgotten meanwhile is to be taken again.
	if reply.Type == agentproto.StepInventory || reply.Type == agentproto.StepNTP {
		e.KeepReply(reply.Type, sum)
	}
	return nil
}

// replySeed is of the sums of replies, which stay in memory.
var replySeed = maphash.MakeSeed()

// sumOf is different for different replies, without a copy of them.
func sumOf(r agentproto.StepReply) uint64 {
	return maphash.Comparable(replySeed, struct {
		exitCode   int
		output, id string
	}{r.ExitCode, r.Output, r.ID})
}

// registries are what a host is asked about with the same step as about the image of its cluster.
const registries = "registries"

// about is what makes a step another one.
func about(h *domain.Host, t agentproto.StepType) string {
	switch {
	case t != agentproto.StepImageAvailability:
		return situation(h)
	case h.State == lifecycle.PreparingForInstallation:
		return h.ClusterID
	}
	return registries
}

// isOther is true for a reply about registries where the image of the cluster is asked about, and the other way round.
func isOther(r agentproto.StepReply, h *domain.Host) bool {
	other := registries
	if h.State != lifecycle.PreparingForInstallation {
		other = h.ClusterID
	}
	return r.Type == agentproto.StepImageAvailability && r.ID == stepID(h.HostKey, r.Type, other)
}

// take keeps what a reply says.
func (s *Service) take(ctx context.Context, h *domain.Host, key domain.HostKey, reply agentproto.StepReply) error {
	if reply.ExitCode == agentproto.MediaLost {
		return s.learn(ctx, key, func(ctx context.Context, w *work, h *domain.Host) error {
			h.MediaConnected = false
			w.tell(h, h.ClusterID, domain.Failure, "host_media_disconnected", h.ClusterID == "", "Host %s: unable to read from the discovery media", h.Label())
			return w.act(ctx, h, lifecycle.LoseMedia, nil)
		})
	}
	switch reply.Type {
	case agentproto.StepInventory:
		return s.takeInventory(ctx, h, key, reply)
	case agentproto.StepInstall:
		return s.takeInstall(ctx, key, reply)
	case agentproto.StepUpgradeAgent:
		return s.takeUpgrade(ctx, key, reply)
	case agentproto.StepBootArtifacts:
		verb := lifecycle.ReclaimReboot
		if reply.ExitCode != 0 {
			verb = lifecycle.ReclaimFail
		}
		return s.learn(ctx, key, func(ctx context.Context, w *work, h *domain.Host) error { return w.act(ctx, h, verb, nil) })
	default:
	}
	learned, err := understand(reply)
	if err != nil || learned == nil || s.changesNothing(key, learned) {
		return err
	}
	return s.learn(ctx, key, func(_ context.Context, _ *work, h *domain.Host) error {
		learned(h)
		return nil
	})
}

// changesNothing is true where a host is in memory as it is stored, and a check leaves it as it is. A cluster whose hosts are to be assessed again needs a transaction.
func (s *Service) changesNothing(key domain.HostKey, learned func(*domain.Host)) bool {
	h := s.hosts.Known(key)
	if h == nil || s.disconnected.Load() || !h.MediaConnected || h.Twin != "" || lifecycle.Silent(h.State) || s.reviews.due(h.ClusterID, s.clock.Now(), s.PollInterval) {
		return false
	}
	after := *h
	learned(&after)
	return reflect.DeepEqual(*h, after)
}

// learn changes a host and brings it up to date.
func (s *Service) learn(ctx context.Context, key domain.HostKey, do func(ctx context.Context, w *work, h *domain.Host) error) error {
	_, err := s.change(ctx, domain.Machine, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if err := do(ctx, w, h); err != nil {
			return err
		}
		return w.refresh(ctx, h)
	})
	return err
}

func (s *Service) takeInventory(ctx context.Context, known *domain.Host, key domain.HostKey, reply agentproto.StepReply) error {
	if reply.ExitCode != 0 {
		return nil
	}
	kept, summary, err := hardware.Read(reply.Output, s.Now())
	if err != nil {
		return domain.Refuse(domain.Invalid, "InventoryInvalid", "the inventory cannot be read: it must be a JSON object of at most %d bytes", hardware.MaxReadBytes)
	}
	if known.Assisted() && known.Fingerprint == "" && strange(known.Summary, summary) {
		return s.takeTwin(ctx, key, summary)
	}
	if known.Twin == "" && known.Summary.Hash == summary.Hash && known.Summary.ClockSkewSeconds == summary.ClockSkewSeconds && known.MediaConnected {
		return nil
	}
	return s.learn(ctx, key, func(ctx context.Context, w *work, h *domain.Host) error {
		h.MediaConnected = true
		if w.now.Sub(h.TwinAt) > twinRest*s.PollInterval {
			h.Twin, h.TwinAt = "", time.Time{}
		}
		if lifecycle.Busy(h.State) && h.Summary.Hash != "" {
			return nil
		}
		h.Summary, h.InventoryAt = summary, w.now
		if h.Summary.Truncation != "" {
			w.tell(h, h.ClusterID, domain.Warning, "host_inventory_truncated", true, "Host %s: the inventory is too large, parts of it are left out", h.FreeLabel())
		}
		return w.PutInventory(ctx, key, kept)
	})
}

// twinRest is how many poll intervals after it was heard last the other one of two machines with one id is taken for gone.
const twinRest = 5

// strange is true for an inventory that is of another machine: no network card of one is in the other. A machine that changes all its cards has to boot, which forgets the former ones.
func strange(known, reported hardware.Summary) bool {
	return len(known.MACAddresses) > 0 && len(reported.MACAddresses) > 0 &&
		!slices.ContainsFunc(reported.MACAddresses, func(mac string) bool { return slices.Contains(known.MACAddresses, mac) })
}

// takeTwin keeps that two machines report as one host, which is not to be installed then: nobody could say which of them is.
func (s *Service) takeTwin(ctx context.Context, key domain.HostKey, other hardware.Summary) error {
	return s.learn(ctx, key, func(_ context.Context, w *work, h *domain.Host) error {
		if !strange(h.Summary, other) {
			return nil
		}
		h.Twin, h.TwinAt = "one has network card "+h.Summary.MACAddresses[0]+", the other "+other.MACAddresses[0], w.now
		w.tell(h, h.ClusterID, domain.Failure, "host_identity_in_use", true, "Host %s: two machines report as it: %s", h.FreeLabel(), h.Twin)
		return nil
	})
}

func (s *Service) takeInstall(ctx context.Context, key domain.HostKey, reply agentproto.StepReply) error {
	if reply.ExitCode == 0 {
		return nil
	}
	return s.learn(ctx, key, func(ctx context.Context, w *work, h *domain.Host) error {
		if h.State != lifecycle.Installing && h.State != lifecycle.InstallingInProgress || reply.ID != "" && !strings.HasPrefix(reply.ID, string(agentproto.StepInstall)+"-") {
			return nil
		}
		why := domain.Truncate(domain.WithoutSecrets(cmp.Or(reply.Error, reply.Output)), 1000)
		w.tell(h, h.ClusterID, domain.Failure, "host_install_failed", false, "Host %s: the installation failed: %s", h.Label(), why)
		return w.actBecause(ctx, h, lifecycle.Fail, nil, "", why)
	})
}

// takeUpgrade tells why an agent could not be upgraded. One that was registers again.
func (s *Service) takeUpgrade(ctx context.Context, key domain.HostKey, reply agentproto.StepReply) error {
	if reply.ExitCode == 0 {
		return nil
	}
	_, err := s.change(ctx, domain.Machine, key, func(_ context.Context, w *work, h *domain.Host) error {
		w.tell(h, h.ClusterID, domain.Warning, "host_agent_upgrade_failed", true, "Host %s: agent %s was not upgraded to %s: %s",
			h.FreeLabel(), h.AgentVersion, s.AgentVersion, domain.Truncate(domain.WithoutSecrets(cmp.Or(reply.Error, reply.Output)), 1000))
		return nil
	})
	return err
}

// understand reads replies that are checks. A nil function has nothing to keep.
func understand(reply agentproto.StepReply) (func(*domain.Host), error) {
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
		// The best way counts. What is good enough for everybody is not kept, so that hosts do not change with each measurement.
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
		case isOther(reply, h):
		case h.State == lifecycle.PreparingForInstallation:
			h.Images, h.ImagesDetail = check, detail
		case h.ClusterID == "" || lifecycle.Idle(h.State):
			h.Checks.Registry, h.Checks.RegistryDetail = check, detail
		}
	}, nil
}
