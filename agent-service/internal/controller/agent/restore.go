// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// installation is what the status of an Agent says of an installation that ended.
type installation struct {
	clusterID string
	at        time.Time
}

// installationOf reads it; the zero installation is none. The cluster is the one that the address of the host's events names.
func installationOf(agent *agentv1.Agent) installation {
	progress := &agent.Status.Progress
	if progress.CurrentStage != string(lifecycle.StageDone) || progress.StageUpdateTime == nil {
		return installation{}
	}
	address, err := url.Parse(agent.Status.DebugInfo.EventsURL)
	if err != nil {
		return installation{}
	}
	return installation{clusterID: address.Query().Get("cluster_id"), at: progress.StageUpdateTime.UTC()}
}

// InstalledBefore is true for an Agent whose status says that its host was installed in a cluster before the host h, which the service knows now, was made: the
// service lost its data in between. Without a host it is true for every Agent whose status says that it was installed.
func InstalledBefore(agent *agentv1.Agent, h *domain.Host) bool {
	was := installationOf(agent)
	switch {
	case was.clusterID == "":
		return false
	case h == nil:
		return true
	case h.ClusterID != "" && h.ClusterID != was.clusterID:
		return false
	}
	const precision = time.Second // of times in a status
	return (lifecycle.Unbound(h.State) || lifecycle.Idle(h.State)) && h.CreatedAt.After(was.at.Add(precision))
}

// restore brings back an installed host that the service lost with its data. Until its cluster is back, the status keeps what it says of the installation.
func (r *Reconciler) restore(ctx context.Context, seen *snapshot) error {
	if lostRelease(seen.agent, seen.host) {
		return r.restoreRelease(ctx, seen)
	}
	if !InstalledBefore(seen.agent, seen.host) || ClusterKey(seen.agent).Name == "" {
		return nil
	}
	was := installationOf(seen.agent)
	deployment := &hivev1.ClusterDeployment{}
	if err := r.Client.Get(ctx, ClusterKey(seen.agent), deployment); err != nil {
		return client.IgnoreNotFound(err)
	}
	if string(deployment.UID) != was.clusterID {
		return nil // it was installed in another one, which is gone
	}
	cluster, err := r.Service.GetCluster(ctx, domain.Kubernetes, was.clusterID)
	switch {
	case domain.KindOf(err) == domain.NotFound:
		seen.waits = true
		return nil
	case err != nil:
		return err
	case cluster.RestoredAt.IsZero():
		return nil // it was not lost: who deleted the host did so on purpose
	}
	status := &seen.agent.Status
	_, err = r.Service.RestoreHost(ctx, domain.Kubernetes, seen.key, domain.RestoredHost{
		ClusterID: was.clusterID, Role: status.Role, Bootstrap: status.Bootstrap, DayTwo: status.Kind == kindDayTwo, InstalledAt: was.at,
		MACAddresses: macs(status.Inventory.Interfaces),
	})
	if domain.KindOf(err) == domain.NotFound {
		seen.soon = true
		return nil
	}
	if err != nil && domain.KindOf(err) != domain.Unavailable && domain.KindOf(err) != "" {
		return nil // the cluster is not installed: nothing is restored
	}
	if err == nil {
		err = r.observeHost(ctx, seen)
	}
	return err
}

// macs are those of the interfaces, in lower case.
func macs(interfaces []agentv1.Interface) []string {
	var found []string
	for i := range interfaces {
		if mac := strings.ToLower(interfaces[i].MacAddress); mac != "" {
			found = append(found, mac)
		}
	}
	return found
}

// lostRelease is true for an Agent whose status says that its machine is not free yet, before the host h was made, which the service knows now: the service lost its data.
func lostRelease(agent *agentv1.Agent, h *domain.Host) bool {
	said := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased)
	const precision = time.Second // of times in a status
	return h != nil && h.ClusterID == "" && h.Release.StartedAt.IsZero() && said != nil && said.Status == corev1.ConditionFalse &&
		h.CreatedAt.After(said.LastTransitionTime.Add(precision))
}

// restoreRelease keeps a machine from its next cluster that was to be wiped before the service lost its data.
func (r *Reconciler) restoreRelease(ctx context.Context, seen *snapshot) error {
	var cluster domain.KubeRef
	if left := seen.agent.Status.DeprovisionInfo; left != nil {
		cluster = domain.KubeRef{Namespace: left.ClusterNamespace, Name: left.ClusterName}
	}
	if err := r.Service.RestoreRelease(ctx, domain.Kubernetes, seen.key, cluster, poolWipe(seen.agent)); err != nil {
		return client.IgnoreNotFound(err)
	}
	return r.observeHost(ctx, seen)
}
