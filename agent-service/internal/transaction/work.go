// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
)

// Work is one transaction: what hosts and clusters do in it, and at its end the changes are written.
type Work struct {
	*changes
}

func (e *Engine) newWork(tx Tx, clusters []string) *Work {
	return &Work{&changes{
		Tx: tx, e: e, Plan: hostplan.Plan{Rules: *e.Rules(), Now: e.Now().UTC().Round(0), NewStamp: NewStamp}, epoch: e.Hosts.Epoch(),
		hosts: map[domain.HostKey]*tracked[domain.Host]{}, clusters: map[string]*tracked[domain.Cluster]{}, locked: clusters,
		announced: map[domain.Change]struct{}{}, reviewed: map[string]struct{}{}, infraEnvs: map[string]*domain.InfraEnv{},
	}}
}
