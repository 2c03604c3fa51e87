// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "slices"

// Conditions of rules.
var (
	notConnected    = &Condition{"not connected", func(f Facts) bool { return !f.Connected }}
	noInventory     = &Condition{"hardware unknown", func(f Facts) bool { return !f.HasInventory }}
	insufficient    = &Condition{"a validation fails", func(f Facts) bool { return !f.Sufficient }}
	sameBoot        = &Condition{"same boot", func(f Facts) bool { return f.SameBoot }}
	beginsAgain     = &Condition{"same boot, before the reboot, not too often", func(f Facts) bool { return f.SameBoot && !f.Rebooted && f.Attempts < MostAttempts }}
	keepsEnding     = &Condition{"same boot, before the reboot", func(f Facts) bool { return f.SameBoot && !f.Rebooted }}
	unprepared      = &Condition{"a check before installation failed", func(f Facts) bool { return f.Unprepared }}
	prepared        = &Condition{"checks passed, cluster prepares", func(f Facts) bool { return f.Prepared && f.ClusterPreparing }}
	clusterIdle     = &Condition{"cluster does not install", func(f Facts) bool { return !f.ClusterPreparing && !f.ClusterInstalling }}
	clusterInstalls = &Condition{"cluster installs", func(f Facts) bool { return f.ClusterInstalling }}
	clusterBusy     = &Condition{"cluster prepares or installs", func(f Facts) bool { return f.ClusterPreparing || f.ClusterInstalling }}
	clusterFailed   = &Condition{"cluster failed", func(f Facts) bool { return f.ClusterFailed && !f.DayTwo }}
	lostInstalling  = &Condition{"not connected, before the reboot", func(f Facts) bool { return !f.Connected && !f.Rebooted }}
	rebooted        = &Condition{"after the reboot", func(f Facts) bool { return f.Rebooted }}
	dayTwo          = &Condition{"joins an installed cluster", func(f Facts) bool { return f.DayTwo }}
	done            = &Condition{"stage is Done", func(f Facts) bool { return f.Stage == StageDone }}
	doneDayTwo      = &Condition{"stage is Done, joins an installed cluster", func(f Facts) bool { return f.Stage == StageDone && f.DayTwo }}
	failed          = &Condition{"stage is Failed", func(f Facts) bool { return f.Stage == StageFailed }}
	resident        = &Condition{"its installed system asks for instructions", func(f Facts) bool { return f.Resident && f.Connected }}
	stoppable       = &Condition{"its agent asks for instructions, before the reboot", func(f Facts) bool { return f.Connected && !f.Rebooted && !f.Assisted }}
	residentLost    = &Condition{"its installed system does not ask any more", func(f Facts) bool { return f.Resident && !f.Connected }}
	unreleased      = &Condition{"not released yet", func(f Facts) bool { return f.Unreleased }}
)

// Sentences that several rules say.
const (
	infoDisconnected = "Host has stopped communicating with the installation service"
	infoDiscovering  = "Waiting for host to send hardware details"
	infoReadyToBind  = "Host is ready to be bound to a cluster"
	infoInsufficient = "Host does not meet the minimum requirements"
	infoKnown        = "Host is ready to be installed"
	infoBinding      = "Host is waiting to be bound to the cluster"
	infoUnbinding    = "Host is waiting to be unbound from the cluster"
	infoMustBoot     = "Host must boot the discovery image again before it can be used"
	infoInstalling   = "Installation is in progress"
	infoKeepsEnding  = "The agent ended again and again while it installed: its logs say why"
	infoRestarted    = "Host restarted unexpectedly during the installation"
	infoWrongBoot    = "Expected the host to boot from disk, but it booted the discovery image: boot it from its disk"
	infoMedia        = "Host cannot read the medium that it was booted from"
	infoElsewhere    = "The machine was booted with the image of another InfraEnv"
	infoReclaiming   = "Host is being brought back"
	infoUnreleased   = "Host is not free yet"

	busyReason   = "HostInstalling"
	busyInfo     = "the host is being installed: cancel the installation first"
	keptReason   = "ClusterInstalling"
	keptInfo     = "its cluster is being installed: wait until that is done, or cancel the installation first"
	freeReason   = "HostNotBound"
	freeInfo     = "the host is bound to no cluster"
	boundReason  = "HostBoundAlready"
	boundInfo    = "the host is bound to a cluster already: move it instead, or unbind it first"
	bootReason   = "HostMustBoot"
	releaseInfo  = "the host is not released yet: its status says what it waits for"
	notReady     = "HostNotReady"
	notReadyInfo = "the host is not ready to be installed"
	notExpected  = "StageNotExpected"
)

func of(families ...[]State) []State { return slices.Concat(families...) }
func only(states ...State) []State   { return states }

// Rules are the table.
var Rules = slices.Concat(registerRules, bindRules, unbindRules, moveRules, installRules, progressRules, endRules, reclaimRules, refreshRules, lossRules, timeOutRules, editRules)

var registerRules = []Rule{
	{Verb: Register, From: of(free, bound, preparing, only(PreparingFailed, Binding, Unbinding)), If: sameBoot, Effects: []Effect{Reassess}},
	{Verb: Register, From: of(reclaiming, only(UnbindingPendingUserAction, ResettingPendingUserAction, Cancelled)), If: sameBoot},
	{
		Verb: Register, From: of(free, reclaiming, only(Unbinding, UnbindingPendingUserAction)), To: DiscoveringUnbound, Info: infoDiscovering,
		Effects: []Effect{ForgetDiscovery, ForgetInstallation, EndTokens},
	},
	{Verb: Register, From: preparing, To: Known, Info: infoKnown, Effects: []Effect{Reassess}},
	{
		Verb: Register, From: of(bound, only(Binding, PreparingFailed, ResettingPendingUserAction, Cancelled)), To: Discovering, Info: infoDiscovering,
		Effects: []Effect{ForgetDiscovery, ForgetInstallation, EndTokens},
	},
	{Verb: Register, From: underWay, If: beginsAgain, To: Installing, Info: infoInstalling, Effects: []Effect{ForgetProgress}},
	{Verb: Register, From: underWay, If: keepsEnding, To: Failed, Info: infoKeepsEnding},
	{Verb: Register, From: of(underWay, only(InstallingPendingUserAction)), If: rebooted, To: InstallingPendingUserAction, Info: infoWrongBoot},
	{Verb: Register, From: only(AddedToExistingCluster), To: InstallingPendingUserAction, Info: infoWrongBoot},
	{Verb: Register, From: of(underWay, only(InstallingPendingUserAction)), To: Failed, Info: infoRestarted},
	{Verb: Register, From: only(Failed)},
	{Verb: Register, From: only(Installed), Refusal: "HostInstalled", Info: "the host is installed: boot it from its disk, or unbind it first"},
}

var bindRules = []Rule{
	{Verb: Bind, From: of(free, only(Unbinding)), If: unreleased, Refusal: "HostNotReleased", Info: releaseInfo},
	{Verb: Bind, From: of(free, only(Unbinding)), If: notConnected, To: Binding, Info: infoBinding, Effects: []Effect{JoinCluster, ForgetInstallation}},
	{Verb: Bind, From: of(free, only(Unbinding)), To: Discovering, Info: infoDiscovering, Effects: []Effect{JoinCluster, ForgetInstallation, Reassess}},
	{Verb: Bind, From: of(reclaiming, only(UnbindingPendingUserAction)), Refusal: bootReason, Info: infoMustBoot},
	{Verb: Bind, From: States, Refusal: boundReason, Info: boundInfo},
}

// mine are the states of hosts that stay in their cluster while it is installed, beside those that install themselves.
var mine = of(bound, ended, only(Binding, PreparingFailed, InstallingPendingUserAction, ResettingPendingUserAction))

var unbindRules = []Rule{
	{Verb: Unbind, From: mine, If: clusterBusy, Refusal: keptReason, Info: keptInfo},
	{Verb: Unbind, From: of(bound, only(Binding, PreparingFailed)), If: notConnected, To: Unbinding, Info: infoUnbinding, Effects: []Effect{LeaveCluster, ForgetInstallation, EndTokens}},
	{
		Verb: Unbind, From: of(bound, only(Binding, PreparingFailed)), To: DiscoveringUnbound, Info: infoDiscovering,
		Effects: []Effect{LeaveCluster, ForgetInstallation, EndTokens, Reassess},
	},
	{Verb: Unbind, From: of(ended, only(InstallingPendingUserAction)), If: resident, To: Reclaiming, Info: infoReclaiming, Effects: []Effect{LeaveCluster, ForgetInstallation}},
	{
		Verb: Unbind, From: only(Cancelled), If: stoppable, To: DiscoveringUnbound, Info: infoDiscovering,
		Effects: []Effect{LeaveCluster, ForgetInstallation, EndTokens, Reassess},
	},
	{
		Verb: Unbind, From: of(ended, only(InstallingPendingUserAction, ResettingPendingUserAction)), To: UnbindingPendingUserAction, Info: infoMustBoot,
		Effects: []Effect{LeaveCluster, ForgetInstallation, EndTokens},
	},
	{Verb: Unbind, From: of(preparing, underWay), Refusal: busyReason, Info: busyInfo},
	{Verb: Unbind, From: States, Refusal: freeReason, Info: freeInfo},
}

var moveRules = []Rule{
	{Verb: Move, From: mine, If: clusterBusy, Refusal: keptReason, Info: keptInfo},
	{
		Verb: Move, From: of(bound, only(Binding, PreparingFailed)), If: notConnected, To: Binding, Info: infoBinding,
		Effects: []Effect{LeaveCluster, JoinCluster, ForgetInstallation, EndTokens},
	},
	{
		Verb: Move, From: of(bound, only(Binding, PreparingFailed)), To: Discovering, Info: infoDiscovering,
		Effects: []Effect{LeaveCluster, JoinCluster, ForgetInstallation, EndTokens, Reassess},
	},
	{Verb: Move, From: of(preparing, underWay), Refusal: busyReason, Info: busyInfo},
	{Verb: Move, From: of(ended, reclaiming, only(InstallingPendingUserAction, ResettingPendingUserAction, UnbindingPendingUserAction)), Refusal: bootReason, Info: infoMustBoot},
	{Verb: Move, From: States, Refusal: freeReason, Info: freeInfo + ": bind it instead"},
}

var installRules = []Rule{
	{Verb: Prepare, From: only(Known), To: PreparingForInstallation, Info: "Host is being checked before the installation", Effects: []Effect{ForgetInstallation}},
	{Verb: Prepare, From: of(preparing, underWay), Refusal: busyReason, Info: "the host is being installed already"},
	{Verb: Prepare, From: States, Refusal: notReady, Info: notReadyInfo},
	{Verb: Start, From: only(Known), If: dayTwo, To: Installing, Info: infoInstalling, Effects: []Effect{ForgetInstallation}},
	{Verb: Start, From: only(Known), Refusal: "ClusterNotInstalled", Info: "the host installs with its cluster: install the cluster"},
	{Verb: Start, From: of(preparing, underWay), Refusal: busyReason, Info: "the host is being installed already"},
	{Verb: Start, From: States, Refusal: notReady, Info: notReadyInfo},
}

var progressRules = []Rule{
	{Verb: Progress, From: of(underWay, only(InstallingPendingUserAction)), If: failed, To: Failed, Info: "The host reported that the installation failed"},
	{Verb: Progress, From: of(underWay, only(InstallingPendingUserAction)), If: doneDayTwo, To: AddedToExistingCluster, Info: "Done"},
	{Verb: Progress, From: of(underWay, only(InstallingPendingUserAction)), If: done, To: Installed, Info: "Done"},
	{Verb: Progress, From: of(underWay, only(InstallingPendingUserAction)), To: InstallingInProgress, Info: infoInstalling},
	{Verb: Progress, From: only(Installed, AddedToExistingCluster)},
	{Verb: Progress, From: States, Refusal: notExpected, Info: "the host does not install"},
	{Verb: Fail, From: of(preparing, underWay), To: Failed, Info: "The installation failed"},
	{Verb: Fail, From: States},
}

var endRules = []Rule{
	{Verb: Cancel, From: of(preparing, only(PreparingFailed)), To: Known, Info: infoKnown, Effects: []Effect{ForgetInstallation, Reassess}},
	{Verb: Cancel, From: of(underWay, only(InstallingPendingUserAction, Installed, Failed)), To: Cancelled, Info: "Installation was cancelled by user"},
	{Verb: Cancel, From: of(bound, only(Binding, Cancelled, ResettingPendingUserAction))},
	{Verb: Cancel, From: only(AddedToExistingCluster), Refusal: "HostInstalled", Info: "the host belongs to the cluster already"},
	{Verb: Cancel, From: States, Refusal: freeReason, Info: freeInfo},
	{Verb: Reset, From: of(preparing, only(PreparingFailed)), To: Known, Info: infoKnown, Effects: []Effect{ForgetInstallation, Reassess}},
	{
		Verb: Reset, From: of(underWay, ended, only(InstallingPendingUserAction)), To: ResettingPendingUserAction, Info: infoMustBoot,
		Effects: []Effect{ForgetInstallation, EndTokens},
	},
	{Verb: Reset, From: of(bound, only(Binding, ResettingPendingUserAction))},
	{Verb: Reset, From: States, Refusal: freeReason, Info: freeInfo},
}

// reclaimRules let an installed system keep its token while it brings its machine back.
var reclaimRules = []Rule{
	{Verb: Reclaim, From: mine, If: clusterBusy, Refusal: keptReason, Info: keptInfo},
	{Verb: Reclaim, From: only(Installed, AddedToExistingCluster), To: Reclaiming, Info: infoReclaiming, Effects: []Effect{LeaveCluster, ForgetInstallation}},
	{Verb: Reclaim, From: only(Failed, Cancelled, InstallingPendingUserAction), If: resident, To: Reclaiming, Info: infoReclaiming, Effects: []Effect{LeaveCluster, ForgetInstallation}},
	{
		Verb: Reclaim, From: only(Cancelled), If: stoppable, To: DiscoveringUnbound, Info: infoDiscovering,
		Effects: []Effect{LeaveCluster, ForgetInstallation, EndTokens, Reassess},
	},
	{
		Verb: Reclaim, From: only(Failed, Cancelled, InstallingPendingUserAction, ResettingPendingUserAction), To: UnbindingPendingUserAction, Info: infoMustBoot,
		Effects: []Effect{LeaveCluster, ForgetInstallation, EndTokens},
	},
	{Verb: Reclaim, From: of(bound, only(Binding, PreparingFailed)), If: notConnected, To: Unbinding, Info: infoUnbinding, Effects: []Effect{LeaveCluster, ForgetInstallation, EndTokens}},
	{
		Verb: Reclaim, From: of(bound, only(Binding, PreparingFailed)), To: DiscoveringUnbound, Info: infoDiscovering,
		Effects: []Effect{LeaveCluster, ForgetInstallation, EndTokens, Reassess},
	},
	{Verb: Reclaim, From: of(preparing, underWay), Refusal: busyReason, Info: busyInfo},
	{Verb: Reclaim, From: States, Refusal: freeReason, Info: freeInfo},
	{Verb: ReclaimReboot, From: only(Reclaiming), To: ReclaimingRebooting, Info: "Host is rebooting into the discovery image"},
	{Verb: ReclaimFail, From: reclaiming, To: UnbindingPendingUserAction, Info: infoMustBoot, Effects: []Effect{EndTokens}},
	{Verb: ReclaimReboot, From: States},
	{Verb: ReclaimFail, From: States},
}

var refreshRules = []Rule{
	{Verb: Refresh, From: only(Unbinding), If: notConnected},
	{Verb: Refresh, From: free, If: notConnected, To: DisconnectedUnbound, Info: infoDisconnected},
	{Verb: Refresh, From: of(free, only(Unbinding)), If: noInventory, To: DiscoveringUnbound, Info: infoDiscovering},
	{Verb: Refresh, From: of(free, only(Unbinding)), If: unreleased, To: InsufficientUnbound, Info: infoUnreleased},
	{Verb: Refresh, From: of(free, only(Unbinding)), If: insufficient, To: InsufficientUnbound, Info: infoInsufficient},
	{Verb: Refresh, From: of(free, only(Unbinding)), To: KnownUnbound, Info: infoReadyToBind},

	{Verb: Refresh, From: only(Reclaiming), If: residentLost, To: UnbindingPendingUserAction, Info: infoMustBoot, Effects: []Effect{EndTokens}},

	{Verb: Refresh, From: only(Binding), If: notConnected},
	{Verb: Refresh, From: of(bound, preparing, only(PreparingFailed)), If: notConnected, To: Disconnected, Info: infoDisconnected},
	{Verb: Refresh, From: of(bound, only(Binding)), If: noInventory, To: Discovering, Info: infoDiscovering},
	{Verb: Refresh, From: of(bound, only(Binding)), If: insufficient, To: Insufficient, Info: infoInsufficient},
	{Verb: Refresh, From: of(bound, only(Binding)), To: Known, Info: infoKnown},

	{Verb: Refresh, From: only(PreparingForInstallation), If: unprepared, To: PreparingFailed, Info: "A check before the installation failed"},
	{Verb: Refresh, From: only(PreparingForInstallation), If: prepared, To: PreparingSuccessful, Info: "Host finished the checks before the installation"},
	{Verb: Refresh, From: of(preparing, only(PreparingFailed)), If: clusterIdle, To: Known, Info: infoKnown},
	{Verb: Refresh, From: only(PreparingSuccessful), If: clusterInstalls, To: Installing, Info: infoInstalling},

	{Verb: Refresh, From: of(underWay, only(InstallingPendingUserAction)), If: clusterFailed, To: Failed, Info: "Host is part of a cluster that failed to install"},
	{Verb: Refresh, From: underWay, If: lostInstalling, To: Failed, Info: "Host failed to install because it stopped communicating with the service"},
	{Verb: Refresh, From: States},
}

var lossRules = []Rule{
	{Verb: LoseMedia, From: of(free, only(Unbinding)), To: DisconnectedUnbound, Info: infoMedia},
	{Verb: LoseMedia, From: of(bound, only(Binding)), To: Disconnected, Info: infoMedia},
	{Verb: LoseMedia, From: underWay, If: rebooted},
	{Verb: LoseMedia, From: of(preparing, underWay, only(PreparingFailed)), To: Failed, Info: infoMedia},
	{Verb: LoseMedia, From: States},
	{Verb: Supersede, From: of(free, only(Unbinding)), To: DisconnectedUnbound, Info: infoElsewhere},
	{Verb: Supersede, From: of(bound, preparing, only(Binding, PreparingFailed)), To: Disconnected, Info: infoElsewhere},
	{Verb: Supersede, From: underWay, If: rebooted, To: InstallingPendingUserAction, Info: infoWrongBoot},
	{Verb: Supersede, From: underWay, To: Failed, Info: infoElsewhere},
	{Verb: Supersede, From: States},
}

var timeOutRules = []Rule{
	{Verb: TimeOut, From: only(Binding), To: Disconnected, Info: infoDisconnected},
	{Verb: TimeOut, From: only(Unbinding), To: DisconnectedUnbound, Info: infoDisconnected},
	{Verb: TimeOut, From: preparing, To: PreparingFailed, Info: "The checks before the installation took too long"},
	{Verb: TimeOut, From: only(PreparingFailed), To: Known, Info: infoKnown, Effects: []Effect{ForgetInstallation, Reassess}},
	{Verb: TimeOut, From: only(Installing), To: Failed, Info: "The installation did not start in time"},
	{Verb: TimeOut, From: only(InstallingInProgress), If: rebooted, To: InstallingPendingUserAction, Info: "The host did not come up from its disk in time: check that it boots from the disk"},
	{Verb: TimeOut, From: only(InstallingInProgress), To: Failed, Info: "The installation made no progress in time"},
	{Verb: TimeOut, From: reclaiming, To: UnbindingPendingUserAction, Info: infoMustBoot, Effects: []Effect{EndTokens}},
	{Verb: TimeOut, From: States},
}

var editRules = []Rule{
	{Verb: Edit, From: of(preparing, underWay), Refusal: busyReason, Info: busyInfo},
	{Verb: Edit, From: States, Effects: []Effect{Reassess}},
	{Verb: Delete, From: of(preparing, underWay), Refusal: busyReason, Info: busyInfo},
	{Verb: Delete, From: States},
}
