// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package provision

import hivev1 "github.com/muster-io/muster/apis/hive/v1"

// Reason is why a hosted cluster is not what was asked for. The set is closed; the value appears as a condition reason.
type Reason string

// The reasons of a Problem.
const (
	// ReasonProcessDied: a process or container of the cluster ended by itself.
	ReasonProcessDied Reason = hivev1.ReasonProcessExited
	// ReasonBinaryMissing: a program that the cluster runs is not there or cannot be executed.
	ReasonBinaryMissing Reason = hivev1.ReasonBinaryMissing
	// ReasonImageUnavailable: a container image cannot be pulled.
	ReasonImageUnavailable Reason = hivev1.ReasonImageUnavailable
	// ReasonPortsTaken: something else listens on a port that the cluster was given.
	ReasonPortsTaken Reason = hivev1.ReasonPortsUnavailable
	// ReasonDiskFull: there is no room for the data.
	ReasonDiskFull Reason = hivev1.ReasonStorageFull
	// ReasonDataDamaged: there is data, and it cannot be used.
	ReasonDataDamaged Reason = hivev1.ReasonDataDamaged
	// ReasonUnschedulable: no node takes the pod, or its volume cannot be had.
	ReasonUnschedulable Reason = hivev1.ReasonUnschedulable
	// ReasonRefused: the API server that the operator talks to refused an object: quota, admission, authorization.
	ReasonRefused Reason = hivev1.ReasonRefused
	// ReasonNotAnswering: everything runs, and /readyz gives no answer or a negative one.
	ReasonNotAnswering Reason = hivev1.ReasonNotAnswering
	// ReasonStartTimedOut: it was started and did not become ready in the time that the runtime gives it.
	ReasonStartTimedOut Reason = hivev1.ReasonStartTimedOut
	// ReasonNotHere: this operator cannot act on the cluster; another replica, which holds its data, can.
	ReasonNotHere Reason = hivev1.ReasonNotHere
	// ReasonAddressPending: the cluster is to be reached at an address that it has not been given yet.
	ReasonAddressPending Reason = hivev1.ReasonAddressPending
	// ReasonOther: none of the above.
	ReasonOther Reason = hivev1.ReasonRuntimeFailed
)

// Problem is one thing that is wrong with one hosted cluster. It is also the error that Start, Stop and Delete return
// for what they know at once; what shows later is found in the next Observation.
type Problem struct {
	Reason Reason
	// Component is the process or container concerned: etcd, kube-apiserver, kube-controller-manager. Empty when it is none of them.
	Component string
	// Message is one clear sentence for a user, with the component, the cause and, where there is one, the way out. It holds no
	// time stamps or counters, so that it is stable, and no credentials.
	Message string
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }

// StorageFull is the problem of a cluster whose etcd has reached the quota of its database. Its reads work, and it stays Ready: starting it again does not help. The socket is where etcd
// listens, in the file system of where.
func StorageFull(where, socket string) *Problem {
	return &Problem{Reason: ReasonDiskFull, Component: "etcd", Message: "etcd has reached the quota of its database and refuses every write (alarm NOSPACE): delete objects of the cluster that are not needed; " +
		"ten minutes later run `etcdctl defrag` and then `etcdctl alarm disarm` with --endpoints=unix://" + socket + " " + where}
}
