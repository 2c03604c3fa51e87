// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"
)

// Verb is what can happen to a host.
type Verb string

// Verbs. Those of users first, then those of machines, then those of the service.
const (
	Bind    Verb = "bind"
	Unbind  Verb = "unbind"
	Move    Verb = "move"
	Prepare Verb = "prepare"
	Start   Verb = "start"
	Cancel  Verb = "cancel"
	Reset   Verb = "reset"
	Reclaim Verb = "reclaim"
	Edit    Verb = "edit"
	Delete  Verb = "delete"

	Register      Verb = "register"
	Progress      Verb = "progress"
	Fail          Verb = "fail"
	LoseMedia     Verb = "lose media"
	ReclaimReboot Verb = "reboot for reclaim"
	ReclaimFail   Verb = "fail to reclaim"

	Refresh   Verb = "refresh"
	TimeOut   Verb = "time out"
	Supersede Verb = "appear elsewhere"
)

// Verbs are all verbs.
var Verbs = []Verb{
	Bind, Unbind, Move, Prepare, Start, Cancel, Reset, Reclaim, Edit, Delete,
	Register, Progress, Fail, LoseMedia, ReclaimReboot, ReclaimFail, Refresh, TimeOut, Supersede,
}

// Facts are what conditions ask about a host.
type Facts struct {
	// Connected: the agent polled within the time-out, and the medium that it runs from can be read.
	Connected bool
	// HasInventory: the hardware is known.
	HasInventory bool
	// Sufficient: all validations pass that block in the present situation, bound or free.
	Sufficient bool
	// Prepared and Unprepared: the checks before an installation ended, well or badly. Neither while they run.
	Prepared   bool
	Unprepared bool
	// ClusterPreparing, ClusterInstalling and ClusterFailed are of the cluster that the host is bound to.
	ClusterPreparing  bool
	ClusterInstalling bool
	ClusterFailed     bool
	// DayTwo: the cluster was installed before the host joined.
	DayTwo bool
	// Rebooted: the installation got as far as the reboot; the agent is gone on purpose.
	Rebooted bool
	// SameBoot: the machine that registers has not been booted since it registered last.
	SameBoot bool
	// Resident: the agent of the installed system asks for instructions.
	Resident bool
	// Assisted: the agent is that of assisted-service, which wipes nothing.
	Assisted bool
	// Unreleased: the cluster that the host left, or its disks, are not done yet.
	Unreleased bool
	// Attempts is how often the installation began again in this boot.
	Attempts int
	// Stage is the one that is reported.
	Stage Stage
}

// MostAttempts is how often an agent that ends while it installs may begin again.
const MostAttempts = 5

// Effect is what a transition does to the record of a host beside its state.
type Effect string

// Effects.
const (
	// ForgetDiscovery drops what the machine reported: inventory, time sources, checks.
	ForgetDiscovery Effect = "forget what was discovered"
	// ForgetInstallation drops progress, role of bootstrap, and checks before an installation.
	ForgetInstallation Effect = "forget the installation"
	// ForgetProgress drops the progress alone, and counts: the installation begins again.
	ForgetProgress Effect = "forget the progress"
	// LeaveCluster ends the binding.
	LeaveCluster Effect = "leave the cluster"
	// JoinCluster begins a binding.
	JoinCluster Effect = "join the cluster"
	// EndTokens ends all tokens of the host: those of its agent, and that of the system that is installed.
	EndTokens Effect = "end the tokens"
	// Reassess applies refresh at once, in the same transaction.
	Reassess Effect = "refresh"
)

// Condition is a named question about facts.
type Condition struct {
	Name  string
	Holds func(Facts) bool
}

// Rule is one line of the table: in one of the states, if the condition holds, the verb leads to a state. The first rule
// that fits counts.
type Rule struct {
	Verb Verb
	From []State
	// If is nil for always.
	If *Condition
	// To is empty for the same state.
	To      State
	Info    string
	Effects []Effect
	// Refusal is the reason where the verb is refused; Info says it in a sentence.
	Refusal string
}

// Outcome is what a verb does to a host.
type Outcome struct {
	To      State
	Info    string
	Effects []Effect
	// Refusal is the reason of a refusal, empty where the verb is allowed; Info is its sentence then.
	Refusal string
}

// Has is true where the outcome has an effect.
func (o Outcome) Has(e Effect) bool { return slices.Contains(o.Effects, e) }

// occasion is what rules are looked up by.
type occasion struct {
	state State
	verb  Verb
}

var table = index(Rules)

func index(rules []Rule) map[occasion][]*Rule {
	table := map[occasion][]*Rule{}
	for i, r := range rules {
		for _, from := range r.From {
			table[occasion{from, r.Verb}] = append(table[occasion{from, r.Verb}], &rules[i])
		}
	}
	return table
}

// Apply is the answer to a verb in a state: every pair has one.
func Apply(state State, verb Verb, facts Facts) Outcome {
	for _, r := range table[occasion{state, verb}] {
		if r.If != nil && !r.If.Holds(facts) {
			continue
		}
		to := r.To
		if to == "" {
			to = state
		}
		return Outcome{To: to, Info: r.Info, Effects: r.Effects, Refusal: r.Refusal}
	}
	return Outcome{To: state, Refusal: "StateNotAllowed", Info: "the host is " + string(state) + ": " + string(verb) + " is not possible now"}
}

// States are all states of hosts, in the order of a life.
var States = []State{
	DiscoveringUnbound, InsufficientUnbound, KnownUnbound, DisconnectedUnbound,
	Binding, Discovering, Insufficient, Known, Disconnected,
	PreparingForInstallation, PreparingSuccessful, PreparingFailed,
	Installing, InstallingInProgress, InstallingPendingUserAction, Installed, AddedToExistingCluster, Failed, Cancelled,
	ResettingPendingUserAction, Unbinding, UnbindingPendingUserAction, Reclaiming, ReclaimingRebooting,
}

// Families of states.
var (
	free       = []State{DiscoveringUnbound, InsufficientUnbound, KnownUnbound, DisconnectedUnbound}
	bound      = []State{Discovering, Insufficient, Known, Disconnected}
	preparing  = []State{PreparingForInstallation, PreparingSuccessful}
	underWay   = []State{Installing, InstallingInProgress}
	ended      = []State{Installed, AddedToExistingCluster, Failed, Cancelled}
	reclaiming = []State{Reclaiming, ReclaimingRebooting}
)

// Unbound is true for states without a cluster.
func Unbound(s State) bool {
	return slices.Contains(free, s) || slices.Contains(reclaiming, s) || s == Unbinding || s == UnbindingPendingUserAction
}

// Busy is true while an installation is under way: the host must not change.
func Busy(s State) bool {
	return slices.Contains(preparing, s) || slices.Contains(underWay, s)
}

// Installs is true from the order to install until the installed system is up.
func Installs(s State) bool { return slices.Contains(underWay, s) || s == InstallingPendingUserAction }

// Installable is true for hosts of a cluster that can be installed, are being installed, or are installed.
func Installable(s State) bool {
	return Installs(s) || slices.Contains([]State{Known, PreparingForInstallation, PreparingSuccessful, Installed, AddedToExistingCluster}, s)
}

// WasInstalled is true for hosts that are what their cluster wants of them.
func WasInstalled(s State) bool { return s == Installed || s == AddedToExistingCluster }

// Idle is true for hosts that are bound and take no part in an installation yet.
func Idle(s State) bool { return s == Binding || slices.Contains(bound, s) }

// Free is true for hosts that belong to no cluster and run the discovery image as far as is known.
func Free(s State) bool { return slices.Contains(free, s) || s == Unbinding }

// Silent is true for states that a host is in only while it has been silent for too long: one that polls is bound and freed at once.
func Silent(s State) bool {
	return slices.Contains([]State{Disconnected, DisconnectedUnbound, Binding, Unbinding}, s)
}

// TimeOuts say how long a host may be in a state before TimeOut happens to it; in Reclaiming, how long after it left its cluster.
var TimeOuts = map[State]time.Duration{
	Binding:                  10 * time.Minute,
	Unbinding:                3 * time.Minute,
	PreparingForInstallation: 20 * time.Minute,
	PreparingSuccessful:      20 * time.Minute,
	PreparingFailed:          10 * time.Minute,
	Installing:               20 * time.Minute,
	InstallingInProgress:     60 * time.Minute,
	Reclaiming:               60 * time.Minute,
	ReclaimingRebooting:      20 * time.Minute,
}

// Stages are all stages in their order.
var Stages = []Stage{
	StageStarting, StageInstalling, StageWriting, StageCopying, StageControlPlane, StageBootkube, StageController, StageRebooting, StageWaitingIgnition,
	StageConfiguring, StageJoined, StageDone, StageFailed,
}

// StagesOf are the stages that a host goes through. The one that brings up the control plane waits for it before it reboots; agents of assisted-service
// report that.
func StagesOf(role string, bootstrap bool) []Stage {
	switch {
	case bootstrap:
		return []Stage{
			StageStarting, StageInstalling, StageWriting, StageControlPlane, StageBootkube, StageController, StageRebooting, StageConfiguring, StageJoined, StageDone,
		}
	case role == "master":
		return []Stage{StageStarting, StageInstalling, StageWriting, StageRebooting, StageConfiguring, StageJoined, StageDone}
	default:
		return []Stage{StageStarting, StageInstalling, StageWriting, StageRebooting, StageWaitingIgnition, StageConfiguring, StageJoined, StageDone}
	}
}

// AfterReboot is true for stages that the installed system goes through, and for the reboot itself.
func AfterReboot(s Stage) bool {
	return slices.Contains([]Stage{StageRebooting, StageWaitingIgnition, StageConfiguring, StageJoined, StageDone}, s)
}

// BootsFromDisk is true for a host whose disk holds the system that it is to run: the one that was just written, or an installed one. One whose installation
// failed, or that is released, boots the discovery image.
func BootsFromDisk(state State, stage Stage) bool {
	return WasInstalled(state) ||
		slices.Contains([]State{Installing, InstallingInProgress, InstallingPendingUserAction}, state) && AfterReboot(stage)
}

// Percentage is how much of an installation is done when a stage begins.
func Percentage(s Stage) int {
	switch s {
	case StageStarting:
		return 5
	case StageInstalling:
		return 10
	case StageWriting:
		return 20
	case StageCopying:
		return 30
	case StageControlPlane:
		return 40
	case StageBootkube:
		return 50
	case StageController:
		return 60
	case StageRebooting:
		return 70
	case StageWaitingIgnition:
		return 75
	case StageConfiguring:
		return 80
	case StageJoined:
		return 90
	case StageDone:
		return 100
	case StageFailed:
	}
	return 0
}
