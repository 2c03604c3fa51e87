// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentproto

// Step is one instruction for an agent.
type Step struct {
	Type StepType
	// ID is stable while the instruction is the same, so that a reply can be distinguished from an older one.
	ID   string
	Args []string
}

// StepType is what an agent is asked to do.
type StepType string

// Step types that the service sends.
const (
	StepInventory         StepType = "inventory"
	StepNTP               StepType = "ntp-synchronizer"
	StepConnectivity      StepType = "connectivity-check"
	StepDomainResolution  StepType = "domain-resolution"
	StepAPIConnectivity   StepType = "api-vip-connectivity-check"
	StepDiskSpeed         StepType = "installation-disk-speed-check"
	StepImageAvailability StepType = "container-image-availability"
	StepInstall           StepType = "install"
	StepStopInstallation  StepType = "stop-installation"
	StepLogsGather        StepType = "logs-gather"
	StepUpgradeAgent      StepType = "upgrade-agent"
	StepBootArtifacts     StepType = "download-boot-artifacts"
	StepRebootForReclaim  StepType = "reboot-for-reclaim"
	StepWipeDisk          StepType = "wipe-disk"
	StepJoinCluster       StepType = "join-cluster"
)

// KubeletCertificate is what an installed system says, with each poll, of the client certificate of its kubelet. A system that says nothing is no node, or has an older agent.
type KubeletCertificate string

// States of a certificate.
const (
	CertificateValid   KubeletCertificate = "valid"
	CertificateExpired KubeletCertificate = "expired"
	CertificateMissing KubeletCertificate = "missing"
)

// StepReply is what an agent reports about one step.
type StepReply struct {
	Type     StepType
	ID       string
	ExitCode int
	Output   string
	Error    string
}

// MediaLost is the exit code of a step whose agent cannot read its medium any more.
const MediaLost = 256
