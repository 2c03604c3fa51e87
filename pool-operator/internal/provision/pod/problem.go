// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// The containers of a pod, which are named for their programs.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
)

// obstacle says what keeps a pod from becoming ready, and how often that happened; nil when it only needs time.
func obstacle(pod *corev1.Pod) (*provision.Problem, int32) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return &provision.Problem{Reason: provision.ReasonUnschedulable, Message: "no node takes the pod: " + c.Message}, 0
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := status.State.Waiting; waiting != nil {
			if problem := waitingProblem(status, waiting); problem != nil {
				return problem, status.RestartCount
			}
		}
		if ended := status.State.Terminated; ended != nil {
			return died(status.Name, ended), status.RestartCount + 1
		}
	}
	return nil, 0
}

// withoutData is what etcd says when it finds no data where there should be some: it asks the other members of its cluster, of which there are none.
const withoutData = "cannot fetch cluster info from peer urls"

// isRefused reports whether etcd does not start because its volume has no data, now or the last time that it was tried.
func isRefused(pod *corev1.Pod) bool {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.Name != etcd {
			continue
		}
		for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if ended != nil && strings.Contains(ended.Message, withoutData) {
				return true
			}
		}
	}
	return false
}

// isOfPrograms reports whether other images may end a problem. The controller of StatefulSets replaces no pod that is not ready, whatever its template says by then.
func isOfPrograms(problem *provision.Problem) bool {
	if problem == nil {
		return false
	}
	switch problem.Reason {
	case provision.ReasonImageUnavailable, provision.ReasonBinaryMissing, provision.ReasonProcessDied:
		return true
	default:
		return false
	}
}

func waitingProblem(status corev1.ContainerStatus, waiting *corev1.ContainerStateWaiting) *provision.Problem {
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return &provision.Problem{Reason: provision.ReasonImageUnavailable, Component: status.Name,
			Message: fmt.Sprintf("the image %s of %s cannot be pulled", status.Image, status.Name)}
	case "CreateContainerError", "RunContainerError", "CreateContainerConfigError":
		return &provision.Problem{Reason: provision.ReasonBinaryMissing, Component: status.Name,
			Message: fmt.Sprintf("%s cannot be run from the image %s", status.Name, status.Image)}
	case "CrashLoopBackOff":
		if ended := status.LastTerminationState.Terminated; ended != nil {
			return died(status.Name, ended)
		}
	}
	return nil
}

// died explains how a container ended; its last words tell a full disk from other causes.
func died(name string, ended *corev1.ContainerStateTerminated) *provision.Problem {
	if strings.Contains(ended.Message, "no space left on device") {
		return &provision.Problem{Reason: provision.ReasonDiskFull, Component: name, Message: "there is no room for the data of " + name}
	}
	return &provision.Problem{Reason: provision.ReasonProcessDied, Component: name,
		Message: fmt.Sprintf("%s ended with exit code %d (%s)%s", name, ended.ExitCode, ended.Reason, lastWords(ended.Message))}
}

// Bounds of the last words in a message.
const (
	mostLines = 3
	mostBytes = 512
)

// lastWords are the last lines that the program wrote, as the pod's status has them, for the end of a sentence; empty when it wrote none.
func lastWords(message string) string {
	var lines []string
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	text := strings.Join(lines[max(0, len(lines)-mostLines):], " / ")
	if len(text) > mostBytes {
		text = "…" + text[len(text)-mostBytes:]
	}
	return "; its last words: " + strings.ToValidUTF8(text, "")
}

// refusal is a problem when the API server said no, and nil when it may say yes to the same a moment later.
func refusal(what string, ref provision.ClusterRef, err error) *provision.Problem {
	if problem, ok := errors.AsType[*provision.Problem](err); ok {
		return problem
	}
	if outcome.IsRefused(err) {
		return &provision.Problem{Reason: provision.ReasonRefused,
			Message: fmt.Sprintf("%s the pod of hosted cluster %s was refused: %v", what, ref, err)}
	}
	return nil
}
