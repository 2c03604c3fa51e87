// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// says gives the cluster a condition that was written, and became what it is, some time ago.
func says(kind string, status corev1.ConditionStatus, reason string, ago time.Duration) option {
	return func(s *hostedplan.Snapshot) {
		at := metav1.NewTime(now.Add(-ago))
		s.Cluster.Status.Conditions = append(s.Cluster.Status.Conditions, hivev1.Condition{
			Type: kind, Status: status, Reason: reason, Message: "1 of 2 machines are off", LastProbeTime: at, LastTransitionTime: at,
		})
	}
}

func TestTheControlPlaneStopsAfterTheMachines(t *testing.T) {
	const machines, ready = hivev1.ClusterDeploymentMachinesStopped, hivev1.ClusterDeploymentReady
	stop := []hostedplan.Action{hostedplan.Stop{Why: hostedplan.WhyHibernate}}
	stopping := says(ready, corev1.ConditionFalse, hivev1.ReasonStoppingOrHibernating, 9*time.Minute+55*time.Second)
	late := says(ready, corev1.ConditionFalse, hivev1.ReasonStoppingOrHibernating, 10*time.Minute)
	running := says(ready, corev1.ConditionFalse, hivev1.ReasonWaitingForNodes, time.Hour)
	for sentence, test := range map[string]struct {
		given   []option
		want    []hostedplan.Action
		requeue time.Duration
	}{
		"without machines at once":                        {nil, stop, 10 * time.Second},
		"with machines that are off at once":              {[]option{says(machines, corev1.ConditionTrue, hivev1.ReasonMachinesStopped, 0)}, stop, 10 * time.Second},
		"not before machines that run":                    {[]option{says(machines, corev1.ConditionFalse, hivev1.ReasonMachinesRunning, time.Hour)}, nil, 10 * time.Second},
		"not before machines that are being stopped":      {[]option{says(machines, corev1.ConditionFalse, hivev1.ReasonStoppingMachines, 0), stopping}, nil, 5 * time.Second},
		"nor where the cluster was not Ready before":      {[]option{says(machines, corev1.ConditionFalse, hivev1.ReasonStoppingMachines, 0), running}, nil, 10 * time.Second},
		"but after ten minutes":                           {[]option{says(machines, corev1.ConditionFalse, hivev1.ReasonStoppingMachines, 0), late}, stop, 10 * time.Second},
		"not while its API does not answer":               {[]option{observed(provision.StateUnreachable), says(machines, corev1.ConditionFalse, hivev1.ReasonStoppingMachines, 0)}, nil, 10 * time.Second},
		"and not where it failed: its machines may be on": {[]option{observed(provision.StateFailed), says(machines, corev1.ConditionFalse, hivev1.ReasonStoppingMachines, 0)}, nil, 10 * time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := hostedplan.Plan(now, snapshot(append([]option{withNodes, installed, hibernate, observed(provision.StateReady)}, test.given...)...))
			assert.Equal(t, test.want, d.Actions)
			assert.Equal(t, test.requeue, d.RequeueAfter)
			if test.want == nil {
				assert.Equal(t, hivev1.PowerStateWaitingForMachinesToStop, d.Status.PowerState)
				c := hivev1.FindCondition(d.Status.Conditions, hivev1.ClusterDeploymentHibernating)
				assert.Equal(t, hivev1.ReasonWaitingForMachinesToStop, c.Reason)
				assert.Equal(t, "The control plane is stopped after the machines. 1 of 2 machines are off.", c.Message)
				assert.Equal(t, hivev1.ReasonStoppingOrHibernating, hivev1.FindCondition(d.Status.Conditions, ready).Reason)
			}
		})
	}
	d := hostedplan.Plan(now, snapshot(withNodes, installed, hibernate, observed(provision.StateStopped), says(machines, corev1.ConditionFalse, hivev1.ReasonStoppingMachines, 0)))
	assert.Equal(t, hivev1.PowerStateHibernating, d.Status.PowerState)
	assert.Equal(t, "No process of the cluster runs; its data is kept. Machines were waited for in vain: see the condition MachinesStopped.",
		hivev1.FindCondition(d.Status.Conditions, hivev1.ClusterDeploymentHibernating).Message)
}

// The wait is counted from when the status first said that the cluster is being stopped, whatever is said of machines meanwhile.
func TestTheWaitForMachinesEnds(t *testing.T) {
	s := snapshot(withNodes, installed, hibernate, observed(provision.StateReady), says(hivev1.ClusterDeploymentMachinesStopped, corev1.ConditionFalse, hivev1.ReasonStoppingMachines, 0))
	began := now
	for at := now; ; at = at.Add(10 * time.Second) {
		s.Cluster.Status.Conditions[0].Message = at.String()
		d := hostedplan.Plan(at, s)
		if len(d.Actions) > 0 {
			assert.Equal(t, 10*time.Minute, at.Sub(began))
			return
		}
		if !assert.Less(t, at.Sub(began), time.Hour) {
			return
		}
		s.Cluster.Status.Conditions = append(s.Cluster.Status.Conditions[:1:1], d.Status.Conditions...)
	}
}

func TestAClusterResumesWithItsMachines(t *testing.T) {
	const machines, hibernating = hivev1.ClusterDeploymentMachinesStopped, hivev1.ClusterDeploymentHibernating
	resumed := func(ago time.Duration) option {
		return says(hibernating, corev1.ConditionFalse, hivev1.ReasonResumingOrRunning, ago)
	}
	starting := says(machines, corev1.ConditionFalse, hivev1.ReasonStartingMachines, time.Minute)
	ranFor := func(long time.Duration) option {
		return func(s *hostedplan.Snapshot) {
			hivev1.FindCondition(s.Cluster.Status.Conditions, hibernating).LastTransitionTime = metav1.NewTime(now.Add(-long))
		}
	}
	for sentence, test := range map[string]struct {
		given []option
		want  hivev1.PowerState
	}{
		"it waits for machines that are off":    {[]option{says(machines, corev1.ConditionTrue, hivev1.ReasonMachinesStopped, time.Hour), resumed(0)}, hivev1.PowerStateWaitingForNodes},
		"it waits for nodes":                    {[]option{starting, resumed(time.Minute)}, hivev1.PowerStateWaitingForNodes},
		"its status is yet to say that it does": {[]option{starting, says(hibernating, corev1.ConditionTrue, hivev1.ReasonHibernating, time.Hour)}, hivev1.PowerStateWaitingForNodes},
		"it was not asleep yet":                 {[]option{starting, says(hibernating, corev1.ConditionFalse, hivev1.ReasonWaitingForMachinesToStop, time.Hour)}, hivev1.PowerStateWaitingForNodes},
		"nor a minute ago, and ran for long":    {[]option{starting, resumed(time.Minute), ranFor(time.Hour)}, hivev1.PowerStateWaitingForNodes},
		"not for ever":                          {[]option{starting, resumed(10 * time.Minute)}, hivev1.PowerStateRunning},
		"not for machines that run":             {[]option{says(machines, corev1.ConditionFalse, hivev1.ReasonMachinesRunning, 0), resumed(0)}, hivev1.PowerStateRunning},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := hostedplan.Plan(now, snapshot(append([]option{withNodes, installed, observed(provision.StateReady)}, test.given...)...))
			assert.Equal(t, test.want, d.Status.PowerState)
		})
	}
}
