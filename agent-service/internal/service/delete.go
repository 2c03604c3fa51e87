// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"slices"

	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// deleteBatch is how many hosts one transaction deletes at most.
const deleteBatch = 200

// DeleteInfraEnv refuses while hosts are bound, installing, or on their way back from a cluster (Conflict HostsBound), unless forced; free hosts go with it. Where it refuses a custom resource, no further
// host registers.
// It is marked first, so that no host joins it any more; then its hosts are deleted in transactions of bounded size, and it itself with the
// last of them. One that was begun is ended also where its caller has gone, and after a restart.
func (s *InfraEnvs) DeleteInfraEnv(ctx context.Context, by domain.Principal, id string, force bool) error {
	if err := s.markInfraEnv(ctx, by, id, force); err != nil {
		s.tellRefused(ctx, err, domain.Event{
			Name: "infra_env_deregister_failed", InfraEnvID: id, ForInfraEnv: true, Message: domain.Truncate("Failed to deregister infra env. Error: "+err.Error(), 2000),
		})
		return err
	}
	return s.endInfraEnv(context.WithoutCancel(ctx), id, force)
}

// markInfraEnv begins a deletion.
func (s *InfraEnvs) markInfraEnv(ctx context.Context, by domain.Principal, id string, force bool) error {
	var refusal error
	err := s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		refusal = nil
		e, err := transaction.OwnInfraEnv(ctx, w, by, id)
		if err != nil {
			return err
		}
		if !force {
			if refusal, err = transaction.KeepsAny(ctx, w, id, w.Now); err != nil {
				return err
			}
			if refusal != nil {
				return w.CloseInfraEnv(ctx, by, e)
			}
		}
		if e.Deleting && e.DeletingForced == force {
			return nil
		}
		e.Deleting, e.DeletingForced, e.UpdatedAt = true, force, w.Now
		w.Changed(domain.Change{Kind: domain.InfraEnvChanged, ID: id})
		return w.PutInfraEnv(ctx, e)
	})
	return errorOf(err, refusal)
}

// endInfraEnv deletes the hosts of a marked InfraEnv, and it. Where a host was bound meanwhile the mark goes again.
func (s *InfraEnvs) endInfraEnv(ctx context.Context, id string, force bool) error {
	for {
		var some domain.List[domain.Host]
		err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
			some, err = r.Hosts(ctx, domain.Scope{Principal: domain.Kubernetes}, domain.HostFilter{InfraEnvID: id, Page: domain.Page{Limit: deleteBatch}})
			return err
		})
		if err != nil {
			return err
		}
		if len(some.Items) > 0 {
			err = s.deleteHosts(ctx, some.Items, force)
		} else {
			err = s.dropInfraEnv(ctx, id)
		}
		switch {
		case domain.ReasonOf(err) == "HostsBound":
			return errorOf(s.unmarkInfraEnv(ctx, id), err)
		case domain.ReasonOf(err) == errHostsLeft.Reason:
		case err != nil || len(some.Items) == 0:
			return err
		}
	}
}

// errorOf is the first error.
func errorOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// deleteHosts deletes hosts of an InfraEnv in one transaction.
func (s *InfraEnvs) deleteHosts(ctx context.Context, hosts []domain.Host, force bool) error {
	keys, clusters := make([]domain.HostKey, 0, len(hosts)), []string{}
	for i := range hosts {
		keys = append(keys, hosts[i].HostKey)
		if c := hosts[i].ClusterID; c != "" && !slices.Contains(clusters, c) {
			clusters = append(clusters, c)
		}
	}
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		found, err := w.LockHosts(ctx, keys)
		if err != nil {
			return err
		}
		var left []string
		for i := range found {
			h := &found[i]
			if why := transaction.Keeps(h, w.Now); why != nil && !force {
				return why
			}
			if err := w.DropRead(h); err != nil {
				return err
			}
			if h.ClusterID != "" && !slices.Contains(left, h.ClusterID) {
				left = append(left, h.ClusterID)
			}
		}
		for _, cluster := range left {
			if err := w.RefreshCluster(ctx, cluster); err != nil {
				return err
			}
		}
		return nil
	}, clusters...)
}

// errHostsLeft is of an InfraEnv that hosts registered with while it was marked.
var errHostsLeft = domain.Refuse(domain.Conflict, "HostsLeft", "the InfraEnv has hosts")

// dropInfraEnv ends a deletion.
func (s *InfraEnvs) dropInfraEnv(ctx context.Context, id string) error {
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		left, err := w.Hosts(ctx, domain.Scope{Principal: domain.Kubernetes}, domain.HostFilter{InfraEnvID: id, Page: domain.Page{Limit: 1}})
		if err != nil {
			return err
		}
		if left.Total > 0 {
			return errHostsLeft
		}
		w.Recorded = append(w.Recorded, domain.Event{
			Name: "infra_env_deregistered", InfraEnvID: id, Severity: domain.Info, Category: "user", Message: "Deregistered InfraEnv", At: w.Now, ForInfraEnv: true,
			Props: json.RawMessage("{}"),
		})
		w.Changed(domain.Change{Kind: domain.InfraEnvChanged, ID: id})
		return w.DeleteInfraEnv(ctx, id)
	})
}

func (s *InfraEnvs) unmarkInfraEnv(ctx context.Context, id string) error {
	return s.engine.Update(ctx, func(ctx context.Context, w *transaction.Work) error {
		e, err := w.InfraEnv(ctx, id)
		if err != nil || e == nil {
			return err
		}
		e.Deleting, e.DeletingForced = false, false
		w.Changed(domain.Change{Kind: domain.InfraEnvChanged, ID: id})
		return w.PutInfraEnv(ctx, e)
	})
}

// endDeletions ends what a process began that is no more.
func (s *InfraEnvs) endDeletions(ctx context.Context) {
	var marked domain.List[domain.InfraEnv]
	err := s.engine.View(ctx, func(ctx context.Context, r transaction.Reader) (err error) {
		marked, err = r.InfraEnvs(ctx, domain.Scope{Principal: domain.Kubernetes}, domain.InfraEnvFilter{Deleting: true})
		return err
	})
	for i := range marked.Items {
		if one := s.endInfraEnv(ctx, marked.Items[i].ID, marked.Items[i].DeletingForced); domain.KindOf(one) != domain.Conflict {
			err = errorOf(err, one)
		}
	}
	if err != nil {
		s.Log.Warn("did not end the deletion of an InfraEnv that was begun", zap.Error(err))
	}
}
