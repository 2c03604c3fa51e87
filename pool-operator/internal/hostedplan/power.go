// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan

import (
	"slices"
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// planPower brings an installed cluster to the power state that is asked for, and puts back Secrets that were lost.
func planPower(now time.Time, s Snapshot) Decision {
	var d Decision
	if s.Cluster.Spec.PowerState == hivev1.PowerStateHibernating {
		d = planHibernating(now, s)
	} else {
		d = planRunning(now, s)
	}
	if s.AccessMissing {
		d.restoreAccess(*s.Cluster.Spec.ClusterMetadata)
	}
	return d
}

// restoreAccess has lost Secrets written again, after what power asks for: a quota or another client's policy may refuse them, and holds up nothing by that. They are tried again while
// the cluster sleeps, too.
func (d *Decision) restoreAccess(metadata hivev1.ClusterMetadata) {
	at := slices.IndexFunc(d.Actions, func(a Action) bool {
		_, inside := a.(PublishNodeAccess)
		return inside
	})
	if at < 0 {
		at = len(d.Actions)
	}
	d.Actions = slices.Insert(d.Actions, at, Action(PublishAccess{Why: WhyRestore, Metadata: metadata}))
	if d.RequeueAfter == 0 {
		d.RequeueAfter = checkReady
	}
}

func planRunning(now time.Time, s Snapshot) Decision {
	d := Decision{Status: statusPower(now, s), RequeueAfter: checkUnready}
	switch s.Observed.State {
	case provision.StateReady:
		d.RequeueAfter = checkReady
		// It is the last action: the cluster's administrators can refuse it, and hold up nothing else by that.
		if s.NodeAccessMissing {
			d.Actions = []Action{PublishNodeAccess{Why: WhyRestore, Metadata: *s.Cluster.Spec.ClusterMetadata, Version: s.Observed.Version}}
		}
	case provision.StateStopped:
		d.Actions = []Action{Start{Why: WhyResume}}
	case provision.StateFailed:
		d.Actions, d.RequeueAfter = retry(now, s.Observed, Start{Why: WhyRetry})
	case provision.StateUnreachable:
		d.Actions, d.RequeueAfter = stopIfHanging(now, s), checkSilent(now, s)
	case provision.StateStarting:
		if s.Observed.Superseded {
			d.Actions = []Action{Stop{Why: WhySuperseded}}
		}
	case provision.StateStopping, provision.StateDeleting, provision.StateAbsent:
	}
	return d
}

func planHibernating(now time.Time, s Snapshot) Decision {
	d := Decision{Status: statusPower(now, s), RequeueAfter: checkUnready}
	switch s.Observed.State {
	case provision.StateStopped:
		d.RequeueAfter = 0
	case provision.StateStopping:
		if s.Observed.Problem != nil {
			d.Actions, d.RequeueAfter = retry(now, s.Observed, Stop{Why: WhyRetry})
		}
	case provision.StateReady, provision.StateStarting, provision.StateUnreachable, provision.StateFailed:
		if _, left := machinesToStop(now, s); left > 0 {
			d.RequeueAfter = min(checkUnready, left)
			break
		}
		d.Actions = []Action{Stop{Why: WhyHibernate}}
	case provision.StateDeleting, provision.StateAbsent:
	}
	return d
}

// stopIfHanging stops a cluster that has not answered for long; stopped, it is started again by the next plan.
func stopIfHanging(now time.Time, s Snapshot) []Action {
	ready := hivev1.FindCondition(s.Cluster.Status.Conditions, hivev1.ClusterDeploymentReady)
	if ready == nil || ready.Reason != hivev1.ReasonNotAnswering || now.Sub(silentSince(s)) < hangAfter {
		return nil
	}
	return []Action{Stop{Why: WhyHang}}
}

// silentSince is since when a cluster has not answered: the latest of when it was started, as the runtime knows, and of what the status says. It was not Ready before where it slept or
// waited for something, and unreachable before where it died.
func silentSince(s Snapshot) time.Time {
	since := s.Observed.Since
	for _, conditionType := range []string{hivev1.ClusterDeploymentReady, hivev1.ClusterDeploymentUnreachable} {
		if c := hivev1.FindCondition(s.Cluster.Status.Conditions, conditionType); c != nil && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}
