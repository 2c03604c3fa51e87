// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"

	"syscall"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// explain turns an error of a control plane into a problem that a user understands.
func explain(err error) *provision.Problem {
	if problem, ok := errors.AsType[*provision.Problem](err); ok {
		return problem
	}
	problem := &provision.Problem{Reason: provision.ReasonOther, Message: "the processes ended"}
	if err == nil {
		return problem
	}
	problem.Message = err.Error()
	problem.Reason, problem.Component = classify(err)
	return problem
}

func classify(err error) (reason provision.Reason, component string) {
	const apiServer = "kube-apiserver"
	if died, ok := errors.AsType[*controlplane.ProcessDiedError](err); ok {
		return provision.ReasonProcessDied, died.Process
	}
	if missing, ok := errors.AsType[*controlplane.MissingBinaryError](err); ok {
		return provision.ReasonBinaryMissing, missing.Name
	}
	if _, ok := errors.AsType[*controlplane.PortTakenError](err); ok {
		return provision.ReasonPortsTaken, apiServer
	}
	if _, ok := errors.AsType[*controlplane.NoFreePortError](err); ok {
		return provision.ReasonPortsTaken, apiServer
	}
	if _, ok := errors.AsType[*controlplane.NotReadyError](err); ok {
		return provision.ReasonStartTimedOut, apiServer
	}
	if _, ok := errors.AsType[*controlplane.InUseError](err); ok {
		return provision.ReasonNotHere, ""
	}
	if _, ok := errors.AsType[*controlplane.DamagedError](err); ok {
		return provision.ReasonDataDamaged, ""
	}
	if _, ok := errors.AsType[*controlplane.DiskFullError](err); ok {
		return provision.ReasonDiskFull, ""
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return provision.ReasonDiskFull, ""
	}
	return provision.ReasonOther, ""
}

// asError keeps a nil problem from becoming an error that is not nil.
func asError(problem *provision.Problem) error {
	if problem == nil {
		return nil
	}
	return problem
}
