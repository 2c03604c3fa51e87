// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const id = "0f1e2d3c-0000-4000-8000-000000000001"

type option func(*hostedplan.Snapshot)

func snapshot(options ...option) hostedplan.Snapshot {
	s := hostedplan.Snapshot{
		Cluster: &hivev1.ClusterDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "blue-x", Name: "blue-x", UID: "u", Finalizers: []string{hivev1.FinalizerDeprovision}},
			Spec:       hivev1.ClusterDeploymentSpec{ClusterName: "blue", BaseDomain: "example.org", Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}}},
		},
		Observed: provision.Observation{State: provision.StateAbsent},
	}
	for _, o := range options {
		o(&s)
	}
	return s
}

func observed(state provision.State) option {
	return func(s *hostedplan.Snapshot) {
		s.Observed = provision.Observation{State: state, ID: id, URL: "https://127.0.0.1:1", Since: now}
		if state == provision.StateReady {
			s.Observed.Version = "v1.36.3"
		}
	}
}

func failing(failures int32, ago time.Duration) option {
	return func(s *hostedplan.Snapshot) {
		s.Observed.Failures, s.Observed.Since = failures, now.Add(-ago)
		s.Observed.Problem = &provision.Problem{Reason: provision.ReasonDiskFull, Component: "etcd", Message: "etcd has no room for its data"}
	}
}

func dying(times int32) option {
	return func(s *hostedplan.Snapshot) {
		s.Observed.Failures = times
		s.Observed.Problem = &provision.Problem{Reason: provision.ReasonProcessDied, Component: "kube-apiserver", Message: "kube-apiserver ended with exit code 1 (Error)"}
	}
}

func silentFor(long time.Duration) option {
	return func(s *hostedplan.Snapshot) {
		s.Observed.Since = now.Add(-24 * time.Hour)
		s.Cluster.Status.Conditions = []hivev1.Condition{{Type: hivev1.ClusterDeploymentReady, Status: corev1.ConditionFalse,
			Reason: hivev1.ReasonNotAnswering, LastTransitionTime: metav1.NewTime(now.Add(-long))}}
	}
}

func startedAgo(long time.Duration) option {
	return func(s *hostedplan.Snapshot) { s.Observed.Since = now.Add(-long) }
}

// unreachableFor is a cluster that answered until then, but for what kept it from being Ready.
func unreachableFor(long time.Duration) option {
	return func(s *hostedplan.Snapshot) {
		s.Cluster.Status.Conditions = append(s.Cluster.Status.Conditions, hivev1.Condition{Type: hivev1.ClusterDeploymentUnreachable, Status: corev1.ConditionTrue,
			Reason: hivev1.ReasonNotAnswering, LastTransitionTime: metav1.NewTime(now.Add(-long))})
	}
}

func installed(s *hostedplan.Snapshot) {
	s.Cluster.Spec.Installed = true
	s.Cluster.Spec.ClusterMetadata = &hivev1.ClusterMetadata{ClusterID: id, InfraID: "blue-0f1e2d3c",
		AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "k"}}
}

func hibernate(s *hostedplan.Snapshot) { s.Cluster.Spec.PowerState = hivev1.PowerStateHibernating }
func deleting(s *hostedplan.Snapshot)  { s.Cluster.DeletionTimestamp = &metav1.Time{Time: now} }
func unmarked(s *hostedplan.Snapshot)  { s.Cluster.Finalizers = nil }
func lostAccess(s *hostedplan.Snapshot) {
	s.AccessMissing = true
}

func withNodes(s *hostedplan.Snapshot)      { s.Cluster.Spec.Platform.Hosted.Nodes = &hivev1.HostedNodes{} }
func lostNodeAccess(s *hostedplan.Snapshot) { s.NodeAccessMissing = true }

func superseded(s *hostedplan.Snapshot) { s.Observed.Superseded = true }
func started(s *hostedplan.Snapshot)    { s.Observed.Started = true }

func withoutVolume(s *hostedplan.Snapshot) {
	s.Observed.DataMissing = "The volume claim data was deleted."
}

// refusing is a cluster whose etcd has an empty volume.
func refusing(s *hostedplan.Snapshot) {
	withoutVolume(s)
	s.Observed.DataRefused = true
	s.Observed.Problem = &provision.Problem{Reason: provision.ReasonProcessDied, Component: "etcd", Message: "etcd ended with exit code 1 (Error)"}
}

// refused is a cluster of which the API server has just refused what the plan before asked for.
func refused(s *hostedplan.Snapshot) {
	s.Refused = &provision.Problem{Reason: provision.ReasonRefused, Message: "stopping the pod was refused: namespace blue does not allow hosted clusters"}
}

func atRisk(s *hostedplan.Snapshot) { s.Observed.DataAtRisk = "The volume claim data was deleted." }
func ofPool(s *hostedplan.Snapshot) {
	s.Cluster.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "pools", PoolName: "p"}
}

func annotated(key string) option {
	return func(s *hostedplan.Snapshot) { s.Cluster.Annotations = map[string]string{key: "true"} }
}

func limited(limit int32) option {
	return func(s *hostedplan.Snapshot) { s.Cluster.Spec.InstallAttemptsLimit = &limit }
}

func restarted(times int) option {
	return func(s *hostedplan.Snapshot) { s.Cluster.Status.InstallRestarts = times }
}

// Node access is there before the cluster is installed, and named only by clusters that take nodes.
func TestNodeAccessIsPublishedBeforeTheClusterIsInstalled(t *testing.T) {
	d := hostedplan.Plan(now, snapshot(withNodes, observed(provision.StateReady)))
	require.Len(t, d.Actions, 3)
	published, ok := d.Actions[1].(hostedplan.PublishNodeAccess)
	require.True(t, ok, "%T", d.Actions[1])
	assert.Equal(t, "v1.36.3", published.Version)
	recorded, ok := d.Actions[2].(hostedplan.RecordInstalled)
	require.True(t, ok, "%T", d.Actions[2])
	require.NotNil(t, recorded.Metadata.NodeAccessSecretRef)
	assert.Equal(t, recorded.Metadata.InfraID+"-node-access", recorded.Metadata.NodeAccessSecretRef.Name)

	d = hostedplan.Plan(now, snapshot(observed(provision.StateReady)))
	require.Len(t, d.Actions, 2)
	assert.Nil(t, d.Actions[1].(hostedplan.RecordInstalled).Metadata.NodeAccessSecretRef) //nolint:forcetypeassert // the test fails
}

// What can still be saved is said while it can.
func TestDataThatGoesWithThePodIsSaid(t *testing.T) {
	said := func(s hostedplan.Snapshot) *hivev1.Condition {
		return hivev1.FindCondition(hostedplan.Plan(now, s).Status.Conditions, hivev1.ClusterDeploymentDataAtRisk)
	}
	s := snapshot(installed, observed(provision.StateReady))
	require.Nil(t, said(s))
	risk := said(snapshot(installed, observed(provision.StateReady), atRisk))
	require.NotNil(t, risk)
	assert.Equal(t, corev1.ConditionTrue, risk.Status)
	assert.Equal(t, "The volume claim data was deleted.", risk.Message)
	s.Cluster.Status.Conditions = []hivev1.Condition{*risk}
	assert.Equal(t, hivev1.ReasonVolumeKept, said(s).Reason)
	withoutVolume(&s)
	assert.Equal(t, hivev1.ReasonDataMissing, said(s).Reason)
}

func TestActions(t *testing.T) {
	start := func(w hostedplan.Why) []hostedplan.Action { return []hostedplan.Action{hostedplan.Start{Why: w}} }
	stop := func(w hostedplan.Why) []hostedplan.Action { return []hostedplan.Action{hostedplan.Stop{Why: w}} }
	for name, c := range map[string]struct {
		snapshot hostedplan.Snapshot
		actions  []hostedplan.Action
		requeue  time.Duration
	}{
		"a paused cluster is left alone, even when it is being deleted": {
			snapshot(deleting, annotated(hivev1.AnnotationReconcilePause)), nil, 0},
		"the cluster does not start before it has the finalizer": {
			snapshot(unmarked), []hostedplan.Action{hostedplan.AddFinalizer{Why: hostedplan.WhyNew}}, 0},
		"a new cluster is started":                               {snapshot(), start(hostedplan.WhyNew), 10 * time.Second},
		"a new cluster that should hibernate is installed first": {snapshot(hibernate), start(hostedplan.WhyNew), 10 * time.Second},
		"an installation that was interrupted goes on":           {snapshot(observed(provision.StateStopped)), start(hostedplan.WhyResume), 10 * time.Second},
		"a cluster that starts is waited for":                    {snapshot(observed(provision.StateStarting)), nil, 10 * time.Second},
		"an installation goes on although power is paused": {
			snapshot(annotated(hivev1.AnnotationPowerStatePause)), start(hostedplan.WhyNew), 10 * time.Second},
		"the first failure is followed by a second of pause": {
			snapshot(observed(provision.StateFailed), failing(1, 0)), nil, time.Second},
		"after the pause installation is tried again": {
			snapshot(observed(provision.StateFailed), failing(1, time.Second)), start(hostedplan.WhyRetry), 10 * time.Second},
		"pauses grow": {snapshot(observed(provision.StateFailed), failing(4, time.Second)), nil, 7 * time.Second},
		"pauses do not grow for ever": {
			snapshot(observed(provision.StateFailed), failing(1000, time.Minute)), start(hostedplan.WhyRetry), 10 * time.Second},
		"a start that left nothing behind is tried again after the pause too": {
			snapshot(failing(2, time.Second)), nil, time.Second},
		"attempts that are used up are used up": {
			snapshot(observed(provision.StateFailed), failing(2, time.Hour), limited(2)), stop(hostedplan.WhyGivenUp), 0},
		"attempts are counted over a restart of the operator": {
			snapshot(observed(provision.StateStopped), limited(2), restarted(2)), nil, 0},
		"a first start whose programs die again and again is begun anew": {
			snapshot(observed(provision.StateStarting), dying(4), restarted(3)), []hostedplan.Action{hostedplan.Delete{Why: hostedplan.WhyAnew}}, 10 * time.Second},
		"it is given a few attempts before":                                       {snapshot(observed(provision.StateStarting), dying(3), restarted(2)), nil, 10 * time.Second},
		"the next time it is given one attempt more":                              {snapshot(observed(provision.StateStarting), dying(4), restarted(4)), nil, 10 * time.Second},
		"a full disk is not mended by beginning anew":                             {snapshot(observed(provision.StateStarting), failing(9, 0)), nil, 10 * time.Second},
		"an installed cluster that dies keeps its data":                           {snapshot(installed, observed(provision.StateStarting), dying(9)), nil, 10 * time.Second},
		"an installation whose programs do not run takes those of the next start": {snapshot(observed(provision.StateStarting), dying(1), superseded), stop(hostedplan.WhySuperseded), 10 * time.Second},
		"so does an installed cluster":                                            {snapshot(installed, observed(provision.StateStarting), dying(9), superseded), stop(hostedplan.WhySuperseded), 10 * time.Second},
		"and not while it is paused":                                              {snapshot(installed, observed(provision.StateStarting), dying(9), superseded, annotated(hivev1.AnnotationPowerStatePause)), nil, 0},
		"a running cluster runs":                                                  {snapshot(installed, observed(provision.StateReady)), nil, time.Minute},
		"a stopped cluster that should run is started":                            {snapshot(installed, observed(provision.StateStopped)), start(hostedplan.WhyResume), 10 * time.Second},
		"a running cluster that should hibernate is stopped":                      {snapshot(installed, hibernate, observed(provision.StateReady)), stop(hostedplan.WhyHibernate), 10 * time.Second},
		"a cluster that starts and should hibernate is stopped": {
			snapshot(installed, hibernate, observed(provision.StateStarting)), stop(hostedplan.WhyHibernate), 10 * time.Second},
		"a failed cluster that should hibernate is stopped, not started": {
			snapshot(installed, hibernate, observed(provision.StateFailed), failing(1, time.Hour)), stop(hostedplan.WhyHibernate), 10 * time.Second},
		"a hibernating cluster sleeps without being looked at":    {snapshot(installed, hibernate, observed(provision.StateStopped)), nil, 0},
		"a cluster that should run and still stops is waited for": {snapshot(installed, observed(provision.StateStopping)), nil, 10 * time.Second},
		"a stop that failed is tried again":                       {snapshot(installed, hibernate, observed(provision.StateStopping), failing(1, time.Minute)), stop(hostedplan.WhyRetry), 10 * time.Second},
		"a dead cluster is started after a pause":                 {snapshot(installed, observed(provision.StateFailed), failing(1, 0)), nil, time.Second},
		"a cluster that does not answer is given time":            {snapshot(installed, observed(provision.StateUnreachable), silentFor(time.Minute)), nil, 10 * time.Second},
		"a cluster that hangs is stopped":                         {snapshot(installed, observed(provision.StateUnreachable), silentFor(time.Hour)), stop(hostedplan.WhyHang), 10 * time.Second},
		"one that has just come up is asked again soon":           {snapshot(installed, observed(provision.StateUnreachable), silentFor(time.Hour), startedAgo(9*time.Second)), nil, time.Second},
		"so is a new one": {snapshot(observed(provision.StateUnreachable)), nil, time.Second},
		"one that has slept, and runs since a minute ago, is given time": {
			snapshot(installed, observed(provision.StateUnreachable), silentFor(time.Hour), startedAgo(time.Minute)), nil, 10 * time.Second},
		"so is one that waited for its nodes until it did not answer": {
			snapshot(installed, observed(provision.StateUnreachable), silentFor(time.Hour), unreachableFor(time.Minute)), nil, 10 * time.Second},
		"one that died, and hangs since it was started again, is stopped": {
			snapshot(installed, observed(provision.StateUnreachable), silentFor(time.Hour), unreachableFor(time.Hour), startedAgo(5*time.Minute)), stop(hostedplan.WhyHang), 10 * time.Second},
		"an installed cluster without data is not made anew":      {snapshot(installed), nil, time.Minute},
		"data of another identity is not taken for the cluster's": {snapshot(installed, observed(provision.StateStopped), func(s *hostedplan.Snapshot) { s.Observed.ID = "other" }), nil, time.Minute},
		"a cluster whose volume is gone is not started": {
			snapshot(installed, observed(provision.StateStopped), withoutVolume), nil, time.Minute},
		"one that was started meanwhile is stopped before it begins with an empty volume": {
			snapshot(installed, observed(provision.StateStarting), withoutVolume), stop(hostedplan.WhyDataMissing), time.Minute},
		"programs that refuse an empty volume are left to find what is restored": {
			snapshot(installed, observed(provision.StateStarting), refusing), nil, time.Minute},
		"they are stopped so that it can be restored": {
			snapshot(installed, hibernate, observed(provision.StateStarting), refusing), stop(hostedplan.WhyHibernate), time.Minute},
		"a cluster whose data would go with its pod does not hibernate": {
			snapshot(installed, hibernate, observed(provision.StateReady), atRisk), nil, 10 * time.Second},
		"nor is it stopped for not answering": {
			snapshot(installed, observed(provision.StateUnreachable), silentFor(time.Hour), atRisk), nil, 10 * time.Second},
		"it is deleted": {
			snapshot(installed, deleting, observed(provision.StateReady), atRisk), []hostedplan.Action{hostedplan.Delete{Why: hostedplan.WhyDeleted}}, 10 * time.Second},
		"one without a claim is left to its pool": {
			snapshot(installed, hibernate, ofPool, observed(provision.StateReady), atRisk), nil, time.Minute},
		"nor while its power is paused": {
			snapshot(installed, observed(provision.StateStopped), started, withoutVolume, annotated(hivev1.AnnotationPowerStatePause)), nil, 0},
		"a new cluster has no volume before its first start":    {snapshot(observed(provision.StateStopped), withoutVolume), start(hostedplan.WhyResume), 10 * time.Second},
		"a cluster of another installer without metadata stays": {snapshot(func(s *hostedplan.Snapshot) { s.Cluster.Spec.Installed = true }), nil, time.Minute},
		"what ran when power was paused is started again": {
			snapshot(installed, observed(provision.StateStopped), started, annotated(hivev1.AnnotationPowerStatePause)), start(hostedplan.WhyResume), 0},
		"also where it should hibernate by now": {
			snapshot(installed, hibernate, observed(provision.StateStopped), started, annotated(hivev1.AnnotationPowerStatePause)), start(hostedplan.WhyResume), 0},
		"what was stopped when power was paused stays so": {
			snapshot(installed, observed(provision.StateStopped), annotated(hivev1.AnnotationPowerStatePause)), nil, 0},
		"what died since power was paused is started after a pause": {
			snapshot(installed, observed(provision.StateFailed), failing(1, 0), started, annotated(hivev1.AnnotationPowerStatePause)), nil, time.Second},
		"what ran when the cluster was paused is started again": {
			snapshot(installed, observed(provision.StateStopped), started, annotated(hivev1.AnnotationReconcilePause)), start(hostedplan.WhyResume), 0},
		"a paused cluster that is deleted is not started": {
			snapshot(installed, deleting, observed(provision.StateStopped), started, annotated(hivev1.AnnotationReconcilePause)), nil, 0},
		"power that is paused is not touched":                      {snapshot(installed, hibernate, observed(provision.StateReady), annotated(hivev1.AnnotationPowerStatePause)), nil, 0},
		"a cluster that is deleted is removed":                     {snapshot(installed, deleting, observed(provision.StateReady)), []hostedplan.Action{hostedplan.Delete{Why: hostedplan.WhyDeleted}}, 10 * time.Second},
		"a cluster that goes is waited for":                        {snapshot(deleting, observed(provision.StateDeleting)), nil, 10 * time.Second},
		"a removal that failed is tried again":                     {snapshot(deleting, observed(provision.StateDeleting), failing(1, time.Minute)), []hostedplan.Action{hostedplan.Delete{Why: hostedplan.WhyRetry}}, 10 * time.Second},
		"when nothing is left the ClusterDeployment may go":        {snapshot(deleting), []hostedplan.Action{hostedplan.RemoveFinalizer{Why: hostedplan.WhyNothingLeft}}, 0},
		"a ClusterDeployment that others hold is none of our care": {snapshot(deleting, unmarked), nil, 0},
		"lost credentials are put back, whatever the power state": {
			snapshot(installed, hibernate, lostAccess, observed(provision.StateStopped)),
			[]hostedplan.Action{hostedplan.PublishAccess{Why: hostedplan.WhyRestore, Metadata: *snapshot(installed).Cluster.Spec.ClusterMetadata}}, time.Minute},
		"power comes before lost credentials, and those before node access": {
			snapshot(withNodes, installed, hibernate, lostAccess, lostNodeAccess, observed(provision.StateReady)),
			append(stop(hostedplan.WhyHibernate), hostedplan.PublishAccess{Why: hostedplan.WhyRestore, Metadata: *snapshot(installed).Cluster.Spec.ClusterMetadata}), 10 * time.Second},
		"node access that is missing or outdated is published again while the cluster runs": {
			snapshot(withNodes, installed, lostNodeAccess, observed(provision.StateReady)),
			[]hostedplan.Action{hostedplan.PublishNodeAccess{Why: hostedplan.WhyRestore, Metadata: *snapshot(installed).Cluster.Spec.ClusterMetadata, Version: "v1.36.3"}}, time.Minute},
		"a cluster that should hibernate is stopped whatever its node access": {
			snapshot(withNodes, installed, hibernate, lostNodeAccess, observed(provision.StateReady)), stop(hostedplan.WhyHibernate), 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d := hostedplan.Plan(now, c.snapshot)
			assert.Equal(t, c.actions, d.Actions)
			assert.Equal(t, c.requeue, d.RequeueAfter)
		})
	}
}

func TestAReadyClusterIsPublishedBeforeItIsCalledInstalled(t *testing.T) {
	d := hostedplan.Plan(now, snapshot(observed(provision.StateReady), hibernate))
	require.Len(t, d.Actions, 2)
	published, ok := d.Actions[0].(hostedplan.PublishAccess)
	require.True(t, ok)
	recorded, ok := d.Actions[1].(hostedplan.RecordInstalled)
	require.True(t, ok)
	assert.Equal(t, published.Metadata, recorded.Metadata)
	assert.Equal(t, "blue-0f1e2d3c", recorded.Metadata.InfraID)
	assert.Equal(t, id, recorded.Metadata.ClusterID)
	assert.Equal(t, "1.36.3", recorded.Labels[hivev1.LabelClusterVersion])
	assert.NotNil(t, recorded.Metadata.AdminPasswordSecretRef)
	assert.NotNil(t, recorded.Metadata.MetadataJSONSecretRef)
}

// Programs of other builds than those of Kubernetes say so in their version, and a label that the API server refuses would keep the cluster from ever being installed.
func TestAnyVersionFitsTheLabelOfTheCluster(t *testing.T) {
	for version, want := range map[string]string{
		"v1.36.3": "1.36.3", "v1.36.3+rke2r1": "1.36.3_rke2r1", "v1.36.3-eks.2+" + strings.Repeat("a", 80): "1.36.3-eks.2_" + strings.Repeat("a", 50), "": "",
	} {
		s := snapshot(observed(provision.StateReady))
		s.Observed.Version = version
		actions := hostedplan.Plan(now, s).Actions
		recorded, ok := actions[len(actions)-1].(hostedplan.RecordInstalled)
		require.True(t, ok)
		label := recorded.Labels[hivev1.LabelClusterVersion]
		assert.Equal(t, want, label)
		assert.Empty(t, content.IsLabelValue(label))
	}
}

func TestStatus(t *testing.T) {
	type said struct {
		power                                    hivev1.PowerState
		provisioned, ready, hibernating, problem string
	}
	for name, c := range map[string]struct {
		snapshot hostedplan.Snapshot
		said     said
	}{
		"installing": {snapshot(observed(provision.StateStarting)), said{"", "False/Provisioning", "False/Provisioning", "", ""}},
		"failing to install": {snapshot(observed(provision.StateFailed), failing(1, 0)),
			said{"", "False/Provisioning", "False/Provisioning", "", ""}},
		"given up": {snapshot(observed(provision.StateFailed), failing(1, 0), limited(1)),
			said{"", "False/ProvisionStopped", "False/ProvisionStopped", "", ""}},
		"running": {snapshot(installed, observed(provision.StateReady)),
			said{hivev1.PowerStateRunning, "True/Provisioned", "True/Running", "False/ResumingOrRunning", "False/Running"}},
		"still running although it should not, until it is seen to stop": {snapshot(installed, hibernate, observed(provision.StateReady)),
			said{hivev1.PowerStateRunning, "True/Provisioned", "True/Running", "False/ResumingOrRunning", "False/Running"}},
		"resuming": {snapshot(installed, observed(provision.StateStarting)),
			said{hivev1.PowerStateStartingMachines, "True/Provisioned", "False/StartingMachines", "False/ResumingOrRunning", "False/StoppingOrHibernating"}},
		"dead": {snapshot(installed, observed(provision.StateFailed), failing(1, 0)),
			said{hivev1.PowerStateFailedToStartMachines, "True/Provisioned", "False/FailedToStartMachines", "False/ResumingOrRunning", "True/StorageFull"}},
		"starting, with something in the way": {snapshot(installed, observed(provision.StateStarting), failing(1, 0)),
			said{hivev1.PowerStateFailedToStartMachines, "True/Provisioned", "False/FailedToStartMachines", "False/ResumingOrRunning", "True/StorageFull"}},
		"silent": {snapshot(installed, observed(provision.StateUnreachable)),
			said{hivev1.PowerStateWaitingForClusterOperators, "True/Provisioned", "False/NotAnswering", "False/ResumingOrRunning", "True/NotAnswering"}},
		"answering, without room for writes": {snapshot(installed, observed(provision.StateReady), failing(0, 0)),
			said{hivev1.PowerStateWaitingForClusterOperators, "True/Provisioned", "False/StorageFull", "False/ResumingOrRunning", "False/Running"}},
		"stopping": {snapshot(installed, hibernate, observed(provision.StateStopping)),
			said{hivev1.PowerStateStopping, "True/Provisioned", "False/StoppingOrHibernating", "False/Stopping", "False/StoppingOrHibernating"}},
		"failing to stop": {snapshot(installed, hibernate, observed(provision.StateStopping), failing(1, 0)),
			said{hivev1.PowerStateFailedToStop, "True/Provisioned", "False/StoppingOrHibernating", "False/FailedToStop", "False/StoppingOrHibernating"}},
		"hibernating": {snapshot(installed, hibernate, observed(provision.StateStopped)),
			said{hivev1.PowerStateHibernating, "True/Provisioned", "False/StoppingOrHibernating", "True/Hibernating", "False/StoppingOrHibernating"}},
		"paused": {snapshot(installed, observed(provision.StateReady), annotated(hivev1.AnnotationPowerStatePause)),
			said{hivev1.PowerStateUnknown, "True/Provisioned", "Unknown/PowerStatePaused", "Unknown/PowerStatePaused", ""}},
		"without its data": {snapshot(installed),
			said{hivev1.PowerStateFailedToStartMachines, "True/Provisioned", "False/FailedToStartMachines", "False/ResumingOrRunning", "True/DataMissing"}},
		"its data at risk": {snapshot(installed, hibernate, observed(provision.StateReady), atRisk),
			said{hivev1.PowerStateFailedToStop, "True/Provisioned", "False/StoppingOrHibernating", "False/FailedToStop", "False/Running"}},
		"its data at risk, and unclaimed": {snapshot(installed, ofPool, observed(provision.StateReady), atRisk),
			said{hivev1.PowerStateFailedToStartMachines, "True/Provisioned", "False/FailedToStartMachines", "False/ResumingOrRunning", "True/DataMissing"}},
		"without its volume": {snapshot(installed, hibernate, observed(provision.StateStopped), withoutVolume),
			said{hivev1.PowerStateFailedToStartMachines, "True/Provisioned", "False/FailedToStartMachines", "False/ResumingOrRunning", "True/DataMissing"}},
		"refused to stop": {snapshot(installed, hibernate, observed(provision.StateReady), refused),
			said{hivev1.PowerStateFailedToStop, "True/Provisioned", "False/StoppingOrHibernating", "False/FailedToStop", "False/Running"}},
		"stopped, and refused something else": {snapshot(installed, hibernate, lostAccess, observed(provision.StateStopped), refused),
			said{hivev1.PowerStateHibernating, "True/Provisioned", "False/StoppingOrHibernating", "True/Hibernating", "False/StoppingOrHibernating"}},
		"refused to go": {snapshot(installed, deleting, observed(provision.StateReady), refused),
			said{hivev1.PowerStateUnknown, "False/DeprovisionFailed", "Unknown/ClusterDeploymentDeleted", "Unknown/ClusterDeploymentDeleted", ""}},
		"going": {snapshot(installed, deleting, observed(provision.StateDeleting)),
			said{hivev1.PowerStateUnknown, "False/Deprovisioning", "Unknown/ClusterDeploymentDeleted", "Unknown/ClusterDeploymentDeleted", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			status := hostedplan.Plan(now, c.snapshot).Status
			require.NotNil(t, status)
			actual := said{
				status.PowerState,
				read(*status, hivev1.ClusterDeploymentProvisioned), read(*status, hivev1.ClusterDeploymentReady),
				read(*status, hivev1.ClusterDeploymentHibernating), read(*status, hivev1.ClusterDeploymentUnreachable),
			}
			assert.Equal(t, c.said, actual)
			again := c.snapshot
			again.Cluster = again.Cluster.DeepCopy()
			again.Cluster.Status = *status
			assert.Equal(t, status, hostedplan.Plan(now.Add(time.Hour), again).Status, "a later plan without news says the same")
		})
	}
}

func read(status hivev1.ClusterDeploymentStatus, conditionType string) string {
	c := hivev1.FindCondition(status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason
}

// A user can only restore what the message names.
func TestMissingDataIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		snapshot hostedplan.Snapshot
		want     string
	}{
		"nothing is there":   {snapshot(installed), "on another machine, or lost"},
		"the volume is gone": {snapshot(installed, observed(provision.StateStopped), withoutVolume), "The volume claim data was deleted."},
		"the keys are gone": {snapshot(installed, func(s *hostedplan.Snapshot) {
			s.Observed = provision.Observation{State: provision.StateFailed, Problem: &provision.Problem{Reason: provision.ReasonDataDamaged, Message: "the Secret keys was deleted"}}
		}), "its data cannot be used: the Secret keys was deleted."},
	} {
		t.Run(name, func(t *testing.T) {
			d := hostedplan.Plan(now, c.snapshot)
			assert.Empty(t, d.Actions)
			assert.Contains(t, hivev1.FindCondition(d.Status.Conditions, hivev1.ClusterDeploymentUnreachable).Message, c.want)
		})
	}
}

func TestAFailureSaysWhyUntilTheClusterAnswers(t *testing.T) {
	s := snapshot(installed, observed(provision.StateFailed), failing(1, 0))
	s.Cluster.Status = *hostedplan.Plan(now, s).Status
	observed(provision.StateStarting)(&s)
	s.Cluster.Status = *hostedplan.Plan(now, s).Status
	c := hivev1.FindCondition(s.Cluster.Status.Conditions, hivev1.ClusterDeploymentUnreachable)
	assert.Equal(t, corev1.ConditionTrue, c.Status)
	assert.Equal(t, "etcd has no room for its data", c.Message)
	observed(provision.StateReady)(&s)
	assert.Equal(t, "False/Running", read(*hostedplan.Plan(now, s).Status, hivev1.ClusterDeploymentUnreachable))
}

func TestBackoffGrowsToAMinute(t *testing.T) {
	assert.Zero(t, hostedplan.Backoff(0))
	last := time.Duration(0)
	for failures := range int32(200) {
		pause := hostedplan.Backoff(failures)
		assert.GreaterOrEqual(t, pause, last)
		assert.LessOrEqual(t, pause, time.Minute)
		last = pause
	}
	assert.Equal(t, time.Minute, last)
}

func outdated(s *hostedplan.Snapshot) { s.Observed.Outdated = true }

func TestCertificatesAreRenewedWhileTheClusterRuns(t *testing.T) {
	renew := hostedplan.Renew{Why: hostedplan.WhyRenew}
	for name, test := range map[string]struct {
		given []option
		want  bool
	}{
		"a cluster that runs":                      {[]option{installed, observed(provision.StateReady), outdated}, true},
		"one that starts":                          {[]option{installed, observed(provision.StateStarting), outdated}, true},
		"one that does not answer":                 {[]option{installed, observed(provision.StateUnreachable), outdated}, true},
		"one that waits for an address":            {[]option{observed(provision.StateStarting), outdated}, true},
		"one that sleeps, until it wakes":          {[]option{installed, hibernate, observed(provision.StateStopped), outdated}, false},
		"one that is paused":                       {[]option{installed, observed(provision.StateReady), outdated, annotated(hivev1.AnnotationReconcilePause)}, false},
		"one that is deleted":                      {[]option{installed, deleting, observed(provision.StateReady), outdated}, false},
		"one that is stopped":                      {[]option{installed, hibernate, observed(provision.StateReady), outdated}, false},
		"one that hangs":                           {[]option{installed, observed(provision.StateUnreachable), silentFor(time.Hour), outdated}, false},
		"one that sleeps and lost its credentials": {[]option{installed, hibernate, lostAccess, observed(provision.StateStopped), outdated}, true},
		"one that has time":                        {[]option{installed, observed(provision.StateReady)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			actions := hostedplan.Plan(now, snapshot(test.given...)).Actions
			if !test.want {
				assert.NotContains(t, actions, renew)
				return
			}
			require.NotEmpty(t, actions)
			assert.Equal(t, renew, actions[0], "before its credentials are published")
		})
	}
}

// A cluster runs on where its network policy or its certificate cannot be made again, and nothing else says so.
func TestARefusedRenewalIsSaid(t *testing.T) {
	ready := func(given ...option) *hivev1.Condition {
		return hivev1.FindCondition(hostedplan.Plan(now, snapshot(append(given, installed, outdated, refused)...)).Status.Conditions, hivev1.ClusterDeploymentReady)
	}
	const sentence = "Access to the cluster is not complete: stopping the pod was refused"
	running := ready(observed(provision.StateReady))
	assert.Equal(t, corev1.ConditionTrue, running.Status)
	assert.Contains(t, running.Message, sentence)
	assert.NotContains(t, ready(observed(provision.StateReady), hibernate).Message, sentence, "it was not renewed: its stop was refused")
}

func TestAClusterTellsOfAnAnnotationThatIsNoBoolean(t *testing.T) {
	odd := func(s *hostedplan.Snapshot) {
		s.Cluster.Annotations = map[string]string{hivev1.AnnotationPowerStatePause: "yes"}
	}
	for name, given := range map[string][]option{
		"installing": {observed(provision.StateStarting), odd},
		"installed":  {installed, observed(provision.StateReady), odd},
		"asleep":     {installed, hibernate, observed(provision.StateStopped), odd},
		"deleting":   {installed, deleting, observed(provision.StateReady), odd},
	} {
		t.Run(name, func(t *testing.T) {
			status := hostedplan.Plan(now, snapshot(given...)).Status
			require.NotNil(t, status)
			assert.Contains(t, hivev1.FindCondition(status.Conditions, hivev1.ClusterDeploymentReady).Message,
				`; annotation hive.openshift.io/powerstate-pause is "yes", which is no boolean and counts as false; write "true" or "false"`)
		})
	}
}
