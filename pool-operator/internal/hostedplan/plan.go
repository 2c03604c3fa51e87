// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Snapshot is all that a plan for one cluster depends on, besides the time. A plan does not change it.
type Snapshot struct {
	// Cluster as read; its platform is hosted.
	Cluster *hivev1.ClusterDeployment
	// Observed is what the runtime found just now.
	Observed provision.Observation
	// FormerUID is that of the ClusterDeployment that this one was restored from, where data is kept under it and none under the cluster's own; else it is empty.
	FormerUID types.UID
	// Refused is why an action of the plan before could not be done; nil when none was refused.
	Refused *provision.Problem
	// PullSecretOutdated says that an image of the cluster cannot be pulled, and that its pool has other credentials for that than the cluster.
	PullSecretOutdated bool
	// AccessMissing says that one of the Secrets that spec.clusterMetadata names does not exist.
	AccessMissing bool
	// NodeAccessMissing says that the cluster takes nodes, runs, and its Secret of node access, or what joining needs inside the cluster, is missing or outdated.
	NodeAccessMissing bool
	// MachinePools are those of the cluster, by name.
	MachinePools []MachinePool
}

// Decision is what to do now, what to say, and when to look again.
type Decision struct {
	// Actions in the order in which they are carried out.
	Actions []Action
	// Status is what the status should say, as far as it is this controller's to say: the conditions of Conditions, powerState, apiURL and what starts with
	// install. It is nil when nothing should be said: the cluster is paused, or as good as gone.
	Status *hivev1.ClusterDeploymentStatus
	// RequeueAfter is when to plan again if nothing else happens. 0: not by itself.
	RequeueAfter time.Duration
}

// Intervals of looking at a cluster that gives no sign of itself.
const (
	// checkReady is how often a running cluster is asked whether it is ready: a process that hangs sends no event.
	checkReady = time.Minute
	// checkUnready is the same for one that starts, stops, goes or does not answer.
	checkUnready = 10 * time.Second
	// checkNew is the same for one that has just come up and does not answer: what leads to a pod follows it by a moment.
	checkNew = time.Second
	// hangAfter is how long a cluster may run without an answer before it is stopped, and then started.
	hangAfter = 5 * time.Minute
)

// checkSilent is when a cluster that does not answer is asked again.
func checkSilent(now time.Time, s Snapshot) time.Duration {
	if now.Sub(s.Observed.Since) < checkUnready {
		return checkNew
	}
	return checkUnready
}

// Hosted says whether the cluster is one that this package plans for: of the hosted platform, and not left to an install object.
func Hosted(cluster *hivev1.ClusterDeployment) bool {
	return cluster.Spec.Platform.Hosted != nil && cluster.Spec.ClusterInstallRef == nil
}

// Paused reports whether an annotation pauses reconciliation of the cluster.
func Paused(cluster *hivev1.ClusterDeployment) bool {
	return hivev1.IsTrue(cluster.Annotations, hivev1.AnnotationReconcilePause)
}

// Plan decides what to do about one hosted cluster. Carrying out the actions and planning again ends with a plan without actions.
func Plan(now time.Time, s Snapshot) Decision {
	switch {
	case Paused(s.Cluster):
		return planPaused(now, s, nil)
	case s.Cluster.DeletionTimestamp != nil:
		return planDelete(now, s)
	case !slices.Contains(s.Cluster.Finalizers, hivev1.FinalizerDeprovision):
		return Decision{Actions: []Action{AddFinalizer{Why: WhyNew}}}
	case !s.Cluster.Spec.Installed:
		return renewed(s, planInstall(now, s))
	case hivev1.IsTrue(s.Cluster.Annotations, hivev1.AnnotationPowerStatePause):
		return planPaused(now, s, statusPowerPaused(now, s))
	case !dataIsHere(s):
		return planDataMissing(now, s)
	}
	return renewed(s, keepData(s, planPower(now, s)))
}

// planPaused leaves a cluster as it was when it was paused. One that ran then and does not now is started: its programs ended with the operator, or died. A kubelet starts them by itself.
func planPaused(now time.Time, s Snapshot, status *hivev1.ClusterDeploymentStatus) Decision {
	d := Decision{Status: status}
	if !s.Cluster.Spec.Installed || s.Cluster.DeletionTimestamp != nil || !s.Observed.Started || !dataIsHere(s) {
		return d
	}
	switch s.Observed.State {
	case provision.StateStopped:
		d.Actions = []Action{Start{Why: WhyResume}}
	case provision.StateFailed:
		d.Actions, d.RequeueAfter = retry(now, s.Observed, Start{Why: WhyRetry})
	case provision.StateAbsent, provision.StateStarting, provision.StateReady, provision.StateUnreachable, provision.StateStopping, provision.StateDeleting:
	}
	return d
}

// renewed has what the cluster is reached with made anew first, when that is outdated and something runs or is to be handed out, and what it pulls images with. A start does so by itself. A cluster that is
// about to end needs neither, and must not wait for what may be refused.
func renewed(s Snapshot, d Decision) Decision {
	if slices.ContainsFunc(d.Actions, ends) {
		return d
	}
	if s.PullSecretOutdated {
		d.Actions = append([]Action{CopyPullSecret{Why: WhyRestore}}, d.Actions...)
	}
	running := slices.Contains([]provision.State{provision.StateStarting, provision.StateReady, provision.StateUnreachable}, s.Observed.State)
	if lost := s.Observed.State == provision.StateStopped && slices.ContainsFunc(d.Actions, publishes); s.Observed.Outdated && (running || lost) {
		d.Actions = append([]Action{Renew{Why: WhyRenew}}, d.Actions...)
	}
	return d
}

// publishes says whether an action hands out credentials, which may have been lost with what a cluster is reached with.
func publishes(action Action) bool {
	_, is := action.(PublishAccess)
	return is
}

// ends says whether an action ends what runs.
func ends(action Action) bool {
	switch action.(type) {
	case Stop, Delete:
		return true
	}
	return false
}

// dataIsHere says whether what was observed is the cluster that was installed, and not nothing, its identity without its data, or something that another replica began. A cluster that is about to lose its
// data is as good as lost while it has no user: a claim gets another cluster.
func dataIsHere(s Snapshot) bool {
	metadata := s.Cluster.Spec.ClusterMetadata
	return s.Observed.State != provision.StateAbsent && metadata != nil && metadata.ClusterID == s.Observed.ID && s.Observed.DataMissing == "" && (s.Observed.DataAtRisk == "" || !unclaimed(s.Cluster))
}

// unclaimed says whether the cluster is one of a pool that no claim has.
func unclaimed(cluster *hivev1.ClusterDeployment) bool {
	c := poolview.ClusterOf(cluster)
	return cluster.Spec.ClusterPoolRef != nil && !c.Claimed()
}

// planDataMissing starts nothing, and stops what would begin with no data. Programs that refuse to do so are stopped when the cluster should hibernate, so that its data can be restored.
func planDataMissing(now time.Time, s Snapshot) Decision {
	d := Decision{Status: statusDataMissing(now, s), RequeueAfter: checkReady}
	switch {
	case s.Observed.DataMissing == "" || s.Observed.State != provision.StateStarting:
	case !s.Observed.DataRefused:
		d.Actions = []Action{Stop{Why: WhyDataMissing}}
	case s.Cluster.Spec.PowerState == hivev1.PowerStateHibernating:
		d.Actions = []Action{Stop{Why: WhyHibernate}}
	}
	return d
}

// keepData leaves a cluster running whose data would go with its end.
func keepData(s Snapshot, d Decision) Decision {
	if s.Observed.DataAtRisk == "" {
		return d
	}
	var kept []Action
	for _, action := range d.Actions {
		if _, stops := action.(Stop); !stops {
			kept = append(kept, action)
		}
	}
	d.Actions = kept
	return d
}

// planDelete removes what there is, and lets the ClusterDeployment go when nothing is left.
func planDelete(now time.Time, s Snapshot) Decision {
	if !slices.Contains(s.Cluster.Finalizers, hivev1.FinalizerDeprovision) {
		return Decision{}
	}
	if d := planRelease(now, s); d != nil {
		return *d
	}
	switch s.Observed.State {
	case provision.StateAbsent:
		return Decision{Actions: []Action{RemoveFinalizer{Why: WhyNothingLeft}}}
	case provision.StateDeleting:
		d := Decision{Status: statusDeleting(now, s), RequeueAfter: checkUnready}
		if s.Observed.Problem == nil {
			return d
		}
		d.Actions, d.RequeueAfter = retry(now, s.Observed, Delete{Why: WhyRetry})
		return d
	default:
		return Decision{Actions: []Action{Delete{Why: WhyDeleted}}, Status: statusDeleting(now, s), RequeueAfter: checkUnready}
	}
}

// retry returns the action if the pause after the last failure is over, else the time until then.
func retry(now time.Time, observed provision.Observation, action Action) ([]Action, time.Duration) {
	if wait := nextTry(observed).Sub(now); wait > 0 {
		return nil, wait
	}
	return []Action{action}, checkUnready
}

// nextTry is when something that failed is tried again. A runtime that does not know when it failed gets one try at once.
func nextTry(observed provision.Observation) time.Time {
	return observed.Since.Add(Backoff(observed.Failures))
}

// Backoff is the pause after so many failures in a row: a second, doubled with each failure, at most a minute, so that a full disk that was
// emptied or a port that was freed is noticed soon.
func Backoff(failures int32) time.Duration {
	const longest = time.Minute
	if failures <= 0 {
		return 0
	}
	if failures > 6 {
		return longest
	}
	return min(time.Second<<(failures-1), longest)
}
