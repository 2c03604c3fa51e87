// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostplan

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// maxPeers is how many hosts of its cluster a host tries to reach.
const maxPeers = 256

// periods are how often a step is asked for again while nothing changes, in poll intervals.
var periods = map[agentproto.StepType]time.Duration{
	agentproto.StepInventory: 1, agentproto.StepNTP: 1, agentproto.StepConnectivity: 1, agentproto.StepDomainResolution: 5, agentproto.StepAPIConnectivity: 5,
	agentproto.StepDiskSpeed: 1, agentproto.StepImageAvailability: 10, agentproto.StepInstall: 1, agentproto.StepStopInstallation: 5, agentproto.StepWipeDisk: 5,
	agentproto.StepBootArtifacts: 1, agentproto.StepRebootForReclaim: 1, agentproto.StepLogsGather: 60, agentproto.StepUpgradeAgent: 10,
	agentproto.StepJoinCluster: 1,
}

// Period is how often a host is asked for a step again while nothing changes, in poll intervals. It is asked in every interval for what its validations wait for: the step
// or the reply may have been lost on its way.
func Period(h *domain.Host, t agentproto.StepType) time.Duration {
	if t == agentproto.StepDomainResolution && h.Checks.Domains == nil || t == agentproto.StepAPIConnectivity && h.Checks.API == validate.Unknown ||
		t == agentproto.StepImageAvailability && h.Checks.Registry == validate.Unknown {
		return 1
	}
	if t == agentproto.StepInventory && h.RunsFromDisk() {
		return addressPeriod
	}
	return periods[t]
}

// addressPeriod is how often an installed system is asked for its addresses, in poll intervals.
const addressPeriod = 5

// Asked are the steps of each state.
var Asked = map[lifecycle.State][]agentproto.StepType{
	lifecycle.DiscoveringUnbound: {agentproto.StepInventory, agentproto.StepNTP, agentproto.StepImageAvailability, agentproto.StepUpgradeAgent, agentproto.StepWipeDisk, agentproto.StepStopInstallation}, lifecycle.InsufficientUnbound: {agentproto.StepInventory, agentproto.StepNTP, agentproto.StepImageAvailability, agentproto.StepUpgradeAgent, agentproto.StepWipeDisk, agentproto.StepStopInstallation},
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
	// An installed system reports the addresses that it has, and gets another bootstrap token where its kubelet lost its certificate.
	lifecycle.Installed: {agentproto.StepInventory, agentproto.StepJoinCluster}, lifecycle.AddedToExistingCluster: {agentproto.StepInventory, agentproto.StepJoinCluster},
	// An agent that still polls may be writing.
	lifecycle.ResettingPendingUserAction: {agentproto.StepStopInstallation}, lifecycle.UnbindingPendingUserAction: {agentproto.StepStopInstallation},
	lifecycle.Reclaiming: {agentproto.StepBootArtifacts}, lifecycle.ReclaimingRebooting: {agentproto.StepRebootForReclaim},
}

// Situation is what instructions are made for: an agent that got others has something to do. A state that was left and entered again is another.
func Situation(h *domain.Host) string {
	way := ""
	switch {
	case h.Release.Underway() && h.Release.Left(): // the release goes on when the cluster is done
		way = "left"
	case h.Rejoins():
		way = h.Node.Rejoin.Stamp
	}
	return strings.Join([]string{way, string(h.State), strconv.FormatInt(h.StateUpdatedAt.UnixNano(), 36), h.ClusterID, h.Role, h.InstallationDiskID, h.InstallationDiskPath}, "|")
}

// StepID is the id of a step about something.
func StepID(key domain.HostKey, t agentproto.StepType, about string) string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(key.String() + "|" + about))
	return string(t) + "-" + hex.EncodeToString(sum.Sum(nil))[:8]
}

// registries are what a host is asked about with the same step as about the image of its cluster.
const registries = "registries"

// About is what makes a step another one.
func About(h *domain.Host, t agentproto.StepType) string {
	switch {
	case t == agentproto.StepWipeDisk:
		return aboutWipe(h)
	case t != agentproto.StepImageAvailability:
		return Situation(h)
	case h.State == lifecycle.PreparingForInstallation:
		return h.ClusterID
	}
	return registries
}

// IsOther is true for a reply about registries where the image of the cluster is asked about, and the other way round.
func IsOther(r agentproto.StepReply, h *domain.Host) bool {
	other := registries
	if h.State != lifecycle.PreparingForInstallation {
		other = h.ClusterID
	}
	return r.Type == agentproto.StepImageAvailability && r.ID == StepID(h.HostKey, r.Type, other)
}

// Known is what steps of a host are made from, beside the host. Each step needs a part of it.
type Known struct {
	// InfraEnv is for ntp-synchronizer.
	InfraEnv *domain.InfraEnv
	// Cluster is for steps of which NeedsCluster is true, and Members are its hosts, for connectivity-check and logs-gather.
	Cluster *domain.Cluster
	Members []*domain.Host
	// AgentSum is for upgrade-agent: the checksum of the service's agent for the architecture of the host, empty for none.
	AgentSum string
	// Artifacts are for download-boot-artifacts and reboot-for-reclaim; nil where they are not known at the moment.
	Artifacts *agentproto.BootArtifactsArgs
	// NetworkConfig is for install: that of cloud-init, empty for none.
	NetworkConfig string
	// Kubeconfig is for join-cluster, a secret; empty where it is not known at the moment.
	Kubeconfig string
}

// Arguments are those of a step; wanted is false where it has nothing to look at.
func (r *Rules) Arguments(h *domain.Host, t agentproto.StepType, k Known) (arguments []string, wanted bool, err error) {
	switch t {
	case agentproto.StepInventory:
		return []string{h.HostID}, h.Resident || !h.RunsFromDisk(), nil
	case agentproto.StepNTP:
		return []string{agentproto.Argument(agentproto.NTPArgs{Sources: cmp.Or(k.InfraEnv.NTPSources, k.InfraEnv.AdditionalNTPSources)})}, true, nil
	case agentproto.StepConnectivity:
		peers := peersOf(h, k.Members)
		return []string{agentproto.Argument(peers)}, len(peers) > 0, nil
	case agentproto.StepWipeDisk:
		arguments, wanted = wipeArguments(h)
		return arguments, wanted, nil
	case agentproto.StepStopInstallation:
		return []string{}, !lifecycle.Free(h.State) || h.Release.Stopping, nil
	case agentproto.StepBootArtifacts, agentproto.StepRebootForReclaim:
		if k.Artifacts == nil || !h.Release.Left() {
			return nil, false, nil
		}
		return []string{agentproto.Argument(k.Artifacts)}, true, nil
	case agentproto.StepJoinCluster:
		return []string{agentproto.Argument(agentproto.JoinArgs{Kubeconfig: k.Kubeconfig})}, h.Rejoins() && k.Kubeconfig != "", nil
	case agentproto.StepUpgradeAgent:
		return []string{agentproto.Argument(agentproto.UpgradeArgs{Version: r.AgentVersion, Architecture: Architecture(h), SHA256: k.AgentSum})}, r.Outdated(h) && k.AgentSum != "", nil
	case agentproto.StepDomainResolution, agentproto.StepAPIConnectivity, agentproto.StepInstall, agentproto.StepImageAvailability, agentproto.StepDiskSpeed, agentproto.StepLogsGather:
		if !NeedsCluster(h, t) {
			return []string{agentproto.Argument(agentproto.ImagesArgs{Images: r.RegistryImages, Timeout: 60})}, t == agentproto.StepImageAvailability && len(r.RegistryImages) > 0, nil
		}
		return r.clusterArguments(h, t, k)
	default:
		return []string{}, true, nil
	}
}

// NeedsCluster is true for steps that look at the cluster of the host. Before an installation its images are those of registries.
func NeedsCluster(h *domain.Host, t agentproto.StepType) bool {
	switch t {
	case agentproto.StepDomainResolution, agentproto.StepAPIConnectivity, agentproto.StepInstall, agentproto.StepDiskSpeed, agentproto.StepLogsGather:
		return h.ClusterID != ""
	case agentproto.StepImageAvailability:
		return h.ClusterID != "" && h.State == lifecycle.PreparingForInstallation
	default:
		return false
	}
}

// Outdated is true for agents of this service that are older than the one that it has.
func (r *Rules) Outdated(h *domain.Host) bool {
	return !h.Assisted() && newer(r.AgentVersion, h.AgentVersion)
}

// Architecture is that of the host's agent.
func Architecture(h *domain.Host) string { return cmp.Or(h.Summary.CPUArchitecture, "x86_64") }

// newer compares releases; what is no release, such as what developers build, is neither newer nor older.
func newer(one, other string) bool {
	a, err := version.ParseSemantic(one)
	if err != nil {
		return false
	}
	b, err := version.ParseSemantic(other)
	return err == nil && b.LessThan(a)
}

func peersOf(h *domain.Host, members []*domain.Host) []agentproto.Peer {
	var peers []agentproto.Peer
	for _, other := range members {
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

// clusterArguments are those of steps that look at the cluster.
func (r *Rules) clusterArguments(h *domain.Host, t agentproto.StepType, k Known) ([]string, bool, error) {
	c := k.Cluster
	if h.Assisted() {
		if arguments, own := r.assistedArguments(h, t, k); own {
			return arguments, true, nil
		}
	}
	switch t {
	case agentproto.StepInstall:
		args, err := r.installArgs(h, c, k.NetworkConfig)
		return []string{agentproto.Argument(args)}, err == nil, err
	case agentproto.StepLogsGather:
		return []string{agentproto.Argument(logsArgs(h, c, k.Members))}, true, nil
	case agentproto.StepDiskSpeed:
		if h.KeepsPartitions() {
			return nil, false, nil
		}
		disk, _ := validate.Disk(r.Subject(h), r.Minimums)
		arguments := []string{agentproto.Argument(agentproto.DiskArgs{Path: disk.Path})}
		if h.Assisted() { // without a time-out they refuse the step
			arguments = append(arguments, assistedDiskTimeout)
		}
		return arguments, true, nil
	case agentproto.StepImageAvailability:
		image, err := r.Image(c, h)
		return []string{agentproto.Argument(agentproto.ImagesArgs{Images: []string{image.URL}, Timeout: 60})}, err == nil, err
	case agentproto.StepAPIConnectivity:
		server := c.APIURL
		if server == "" && len(c.APIVIPs) > 0 {
			server = "https://" + net.JoinHostPort(c.APIVIPs[0], "6443")
		}
		if !h.DayTwo || server == "" {
			return nil, false, nil
		}
		return []string{agentproto.Argument(agentproto.APIArgs{URL: server + "/readyz"})}, true, nil
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

// Image is what a host of a cluster writes: that of the cluster's version, whatever the discovery image has. A host that joins an installed cluster takes the newest patch of the same
// minor where there is none of the version: Kubernetes has nodes of any patch beside each other.
func (r *Rules) Image(c *domain.Cluster, h *domain.Host) (agentproto.OSImage, error) {
	architecture := c.CPUArchitecture
	if architecture == hardware.Mixed {
		architecture = cmp.Or(h.Summary.CPUArchitecture, architecture)
	}
	var patch agentproto.OSImage
	for _, image := range r.OSImages {
		if image.CPUArchitecture != "" && hardware.Architecture(image.CPUArchitecture) != hardware.Architecture(architecture) {
			continue
		}
		if image.Version == c.OpenshiftVersion {
			return image, nil
		}
		if h.DayTwo && sameMinor(image.Version, c.OpenshiftVersion) && (patch.Version == "" || newer(image.Version, patch.Version)) {
			patch = image
		}
	}
	if patch.Version != "" {
		return patch, nil
	}
	return agentproto.OSImage{}, domain.Refuse(domain.Conflict, "OSImageUnknown", "there is no image of version %q for %s: configure one (--os-images), or choose another version", c.OpenshiftVersion, architecture)
}

// sameMinor is true for two releases of one minor; a release candidate is none.
func sameMinor(one, other string) bool {
	a, err := version.ParseSemantic(one)
	if err != nil {
		return false
	}
	b, err := version.ParseSemantic(other)
	return err == nil && a.Major() == b.Major() && a.Minor() == b.Minor() && a.PreRelease() == "" && b.PreRelease() == ""
}

// CheckJoin is why a free host cannot be installed for a cluster that is installed already, nil where it can be. Validations say what else is in its way when it is bound.
func (r *Rules) CheckJoin(h *domain.Host, c *domain.Cluster) error {
	if !hardware.Fits(h.Summary.CPUArchitecture, c.CPUArchitecture) {
		return domain.Refuse(domain.Conflict, "ArchitectureMismatch", "it has architecture %s, the cluster has %s", h.Summary.CPUArchitecture, c.CPUArchitecture)
	}
	joins := *h
	joins.DayTwo = true
	return r.imageMissing(&joins, c)
}

// Check is what is wrong with the settings of a cluster that is not installed, nil for nothing. Kube is its custom resource, empty for none.
func (r *Rules) Check(c domain.ClusterSettings, kube domain.KubeRef) error {
	if err := c.Check(); err != nil {
		return err
	}
	runs := slices.ContainsFunc(r.OSImages, func(image agentproto.OSImage) bool { return image.Version == c.OpenshiftVersion && image.ControlPlane })
	if runs && kube != (domain.KubeRef{}) && !c.Imported {
		return c.CheckControlPlanes()
	}
	return nil
}

// device is the path of the disk that a host writes: the one that was recorded when it began.
func (r *Rules) device(h *domain.Host) string {
	if h.InstallationDisk != "" {
		return h.InstallationDisk
	}
	disk, _ := validate.Disk(r.Subject(h), r.Minimums)
	return disk.Path
}

// installArgs are the instruction to write the image.
func (r *Rules) installArgs(h *domain.Host, c *domain.Cluster, networkConfig string) (args agentproto.InstallArgs, err error) {
	image, err := r.Image(c, h)
	if err != nil {
		return args, err
	}
	args = agentproto.InstallArgs{
		InfraEnvID: h.InfraEnvID, HostID: h.HostID, ClusterID: c.ID, Role: h.Role, Hostname: h.Hostname(), Device: r.device(h), Image: image,
		FirstBootURL: "/api/assisted-install/v2/infra-envs/" + h.InfraEnvID + "/hosts/" + h.HostID + "/first-boot", SkipDisks: h.SkipFormattingDisks,
		NetworkConfig: networkConfig,
	}
	if h.InstallerArgs != "" && json.Unmarshal([]byte(h.InstallerArgs), &args.InstallerArgs) != nil {
		return args, domain.Refuse(domain.Conflict, "InstallerArgsInvalid", "installer_args of host %s is not a JSON list of strings", h.HostID)
	}
	return args, nil
}
