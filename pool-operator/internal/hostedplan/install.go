// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// planInstall brings a new cluster to its first answer, whatever its power state, and then publishes how to get into it.
func planInstall(now time.Time, s Snapshot) Decision {
	if provisionStopped(s) && s.Observed.State != provision.StateReady {
		return planGivenUp(now, s)
	}
	d := Decision{Status: statusInstalling(now, s), RequeueAfter: checkUnready}
	switch s.Observed.State {
	case provision.StateReady:
		d.Actions = publish(s)
	case provision.StateAbsent:
		if s.Observed.Problem != nil {
			return planFailedInstall(now, s)
		}
		d.Actions = []Action{Start{Why: WhyNew}}
	case provision.StateStopped:
		d.Actions = []Action{Start{Why: WhyResume}}
	case provision.StateFailed:
		return planFailedInstall(now, s)
	case provision.StateStarting:
		switch {
		case halfLaid(s):
			d.Actions = []Action{Delete{Why: WhyAnew}}
		case s.Observed.Superseded:
			d.Actions = []Action{Stop{Why: WhySuperseded}}
		}
	case provision.StateUnreachable:
		d.RequeueAfter = checkSilent(now, s)
	case provision.StateStopping, provision.StateDeleting:
	}
	return d
}

// deathsOfData is after how many ends in a row of a program in its first start the data is held to be the cause.
const deathsOfData = 4

// halfLaid says whether the data of a cluster that never answered may be what its programs die of: an API server that is killed while
// it lays down its first objects can refuse to start on them for ever. Such data is safe to remove, as no client had access yet. Each further time it
// takes one death more, so that the data of a cluster that dies of something else is not thrown away in a circle and its attempts still add up.
func halfLaid(s Snapshot) bool {
	problem, deaths := s.Observed.Problem, int(s.Observed.Failures)
	return problem != nil && problem.Reason == provision.ReasonProcessDied &&
		deaths >= deathsOfData && deaths > s.Cluster.Status.InstallRestarts
}

// planFailedInstall tries again after a pause.
func planFailedInstall(now time.Time, s Snapshot) Decision {
	d := Decision{Status: statusInstalling(now, s)}
	d.Actions, d.RequeueAfter = retry(now, s.Observed, Start{Why: WhyRetry})
	return d
}

// planGivenUp leaves nothing running of an installation that used all its attempts.
func planGivenUp(now time.Time, s Snapshot) Decision {
	d := Decision{Status: statusInstalling(now, s)}
	switch s.Observed.State {
	case provision.StateStarting, provision.StateUnreachable, provision.StateFailed:
		d.Actions = []Action{Stop{Why: WhyGivenUp}}
	case provision.StateAbsent, provision.StateStopped, provision.StateReady, provision.StateStopping, provision.StateDeleting:
	}
	return d
}

// publish makes the cluster usable by others: its credentials first, then spec.installed, so that no client is sent to
// Secrets that do not exist yet.
func publish(s Snapshot) []Action {
	metadata := metadataOf(s)
	actions := []Action{PublishAccess{Why: WhyInstalled, Metadata: metadata}}
	if metadata.NodeAccessSecretRef != nil {
		actions = append(actions, PublishNodeAccess{Why: WhyInstalled, Metadata: metadata, Version: s.Observed.Version})
	}
	return append(actions,
		RecordInstalled{Why: WhyInstalled, Metadata: metadata, Labels: map[string]string{
			hivev1.LabelClusterPlatform: hivev1.PlatformHosted,
			hivev1.LabelClusterVersion:  versionLabel(s.Observed.Version),
		}},
	)
}

// versionLabel is the version of a cluster as a label can have it: without the + of builds such as v1.37.2+rke2r1.
func versionLabel(version string) string {
	text := strings.ReplaceAll(strings.TrimPrefix(version, "v"), "+", "_")
	return strings.Trim(text[:min(len(text), validation.LabelValueMaxLength)], "-_.")
}

// Lengths that keep the names of Secrets within what an object may be called.
const (
	infraNameLength   = 27
	infraSuffixLength = 8
)

// metadataOf says how to get into the cluster. All of it follows from the name and the identity of the data, so that a second attempt
// writes the same Secrets again.
func metadataOf(s Snapshot) hivev1.ClusterMetadata {
	name := strings.TrimRight(s.Cluster.Spec.ClusterName[:min(len(s.Cluster.Spec.ClusterName), infraNameLength)], "-.")
	suffix := s.Observed.ID[:min(len(s.Observed.ID), infraSuffixLength)]
	infraID := strings.ToLower(name + "-" + suffix)
	metadata := hivev1.ClusterMetadata{
		ClusterID:                s.Observed.ID,
		InfraID:                  infraID,
		AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: infraID + "-admin-kubeconfig"},
		AdminPasswordSecretRef:   &hivev1.LocalObjectReference{Name: infraID + "-admin-password"},
		MetadataJSONSecretRef:    &hivev1.LocalObjectReference{Name: infraID + "-metadata-json"},
	}
	if s.Cluster.Spec.Platform.Hosted.Nodes != nil {
		metadata.NodeAccessSecretRef = &hivev1.LocalObjectReference{Name: infraID + "-node-access"}
	}
	return metadata
}

// attempts counts failed attempts of installation. The runtime may forget them when the operator restarts; the status does not.
func attempts(s Snapshot) int {
	if s.Observed.State == provision.StateStopping || s.Observed.State == provision.StateDeleting {
		return s.Cluster.Status.InstallRestarts // it is the end that fails
	}
	return max(s.Cluster.Status.InstallRestarts, int(s.Observed.Failures))
}

// provisionStopped says whether an installation has failed as often as it may.
func provisionStopped(s Snapshot) bool {
	limit := s.Cluster.Spec.InstallAttemptsLimit
	return !s.Cluster.Spec.Installed && limit != nil && *limit > 0 && attempts(s) >= int(*limit)
}
