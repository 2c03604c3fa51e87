// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

func waiting(reason string, restarts int32, last *corev1.ContainerStateTerminated) corev1.PodStatus {
	return corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
		Name: "etcd", Image: "muster.local/control-plane:v1", RestartCount: restarts,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		LastTerminationState: corev1.ContainerState{Terminated: last},
	}}}
}

func TestObstaclesOfAPod(t *testing.T) {
	ended := &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}
	spoken := &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "starting\none more line\n\npanic: wrong flag\ngoroutine 1\n"}
	full := &corev1.ContainerStateTerminated{ExitCode: 1, Message: "mvcc: write /data/etcd/x: no space left on device"}
	for name, c := range map[string]struct {
		status   corev1.PodStatus
		reason   provision.Reason
		sentence string
		failures int32
	}{
		"only time": {waiting("ContainerCreating", 0, nil), "", "", 0},
		"a node": {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available"}}},
			provision.ReasonUnschedulable, "no node takes the pod: 0/3 nodes are available", 0},
		"an image":  {waiting("ImagePullBackOff", 0, nil), provision.ReasonImageUnavailable, "the image muster.local/control-plane:v1 of etcd cannot be pulled", 0},
		"a program": {waiting("RunContainerError", 1, nil), provision.ReasonBinaryMissing, "etcd cannot be run from the image muster.local/control-plane:v1", 1},
		"a crash":   {waiting("CrashLoopBackOff", 3, ended), provision.ReasonProcessDied, "etcd ended with exit code 2 (Error)", 3},
		"last words": {waiting("CrashLoopBackOff", 3, spoken), provision.ReasonProcessDied,
			"etcd ended with exit code 1 (Error); its last words: one more line / panic: wrong flag / goroutine 1", 3},
		"a full disk": {waiting("CrashLoopBackOff", 4, full),
			provision.ReasonDiskFull, "there is no room for the data of etcd", 4},
		"an end that was not made good yet": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "kube-apiserver",
			State: corev1.ContainerState{Terminated: ended}}}}, provision.ReasonProcessDied, "kube-apiserver ended with exit code 2 (Error)", 1},
	} {
		t.Run(name, func(t *testing.T) {
			problem, failures := obstacle(&corev1.Pod{Status: c.status})
			assert.Equal(t, c.failures, failures)
			if c.reason == "" {
				assert.Nil(t, problem)
				return
			}
			require.NotNil(t, problem)
			assert.Equal(t, c.reason, problem.Reason)
			assert.Equal(t, c.sentence, problem.Message)
		})
	}
}

func TestOnlyANoIsARefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	ref := provision.ClusterRef{Namespace: "blue", Name: "blue"}
	assert.Nil(t, refusal("starting", ref, nil))
	assert.Nil(t, refusal("starting", ref, apierrors.NewConflict(pods, "x", errors.New("changed"))))
	assert.Nil(t, refusal("starting", ref, apierrors.NewServiceUnavailable("a moment")))
	assert.NotNil(t, refusal("starting", ref, apierrors.NewForbidden(pods, "x", errors.New("quota"))))
	known := &provision.Problem{Reason: provision.ReasonOther, Message: "the address is none"}
	assert.Equal(t, known, refusal("starting", ref, known))
}
