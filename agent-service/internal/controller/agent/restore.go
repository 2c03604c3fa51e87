// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// installation is what the status of an Agent says of an installation that ended.
type installation struct {
	// clusterID is empty for an Agent that assisted-service installed: its cluster is the one that the spec names.
	clusterID string
	at        time.Time
}

// installationOf reads it; the zero installation is none. The cluster is the one that the address of the host's events names. That of an Agent which this service reported on names
// the InfraEnv in any case; assisted-service, whose kinds these are, names the host alone.
func installationOf(agent *agentv1.Agent) installation {
	progress := &agent.Status.Progress
	if progress.CurrentStage != string(lifecycle.StageDone) || progress.StageUpdateTime == nil {
		return installation{}
	}
	address, err := url.Parse(agent.Status.DebugInfo.EventsURL)
	if err != nil {
		return installation{}
	}
	query := address.Query()
	clusterID, ours := query.Get("cluster_id"), query.Has("infra_env_id")
	if clusterID == "" && (ours || ClusterKey(agent) == (client.ObjectKey{})) {
		return installation{}
	}
	return installation{clusterID: clusterID, at: progress.StageUpdateTime.UTC()}
}

// InstalledBefore is true for an Agent whose status says that its host was installed in a cluster, of which the host h knows nothing: the service lost its data since, or works with those of
// before. Without a host it is true for every Agent whose status says that it was installed.
func InstalledBefore(agent *agentv1.Agent, h *domain.Host) bool {
	was := installationOf(agent)
	switch {
	case was == (installation{}):
		return false
	case h == nil:
		return true
	case h.ClusterID != "" && was.clusterID != "" && h.ClusterID != was.clusterID:
		return false
	}
	return !lifecycle.WasInstalled(h.State) && h.Missed(was.at)
}

// restore brings back an installed host that the service lost with its data. Until its cluster is back, the status keeps what it says of the installation.
func (r *Reconciler) restore(ctx context.Context, seen *snapshot) error {
	if LostRelease(seen.agent, seen.host) {
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
	clusterID := string(deployment.UID)
	if was.clusterID != "" && was.clusterID != clusterID {
		return nil // it was installed in another one, which is gone
	}
	cluster, err := r.Service.GetCluster(ctx, domain.Kubernetes, clusterID)
	switch {
	case domain.KindOf(err) == domain.NotFound:
		seen.waits = true
		return nil
	case err != nil:
		return err
	case seen.host == nil && cluster.RestoredAt.IsZero() && cluster.CreatedAt.Before(was.at):
		return nil // the cluster was not lost: the host was deregistered; or it was lost, and is restored when its machine registers
	}
	status := &seen.agent.Status
	_, err = r.Service.RestoreHost(ctx, domain.Kubernetes, seen.key, domain.RestoredHost{
		ClusterID: clusterID, Role: status.Role, Bootstrap: status.Bootstrap, DayTwo: status.Kind == kindDayTwo, InstalledAt: was.at,
		MACAddresses: macs(status.Inventory.Interfaces), Hostname: status.Inventory.Hostname, Addresses: addressesOf(status.Inventory.Interfaces),
	})
	if domain.ReasonOf(err) == "ClusterNotInstalled" {
		seen.waits, err = r.comesBack(ctx, deployment)
		return err
	}
	if domain.KindOf(err) == domain.NotFound {
		seen.soon = true
		return nil
	}
	if err != nil && !domain.Transient(err) {
		return nil // the host was deregistered on purpose
	}
	if err == nil {
		err = r.observeHost(ctx, seen)
	}
	return err
}

// comesBack is true for a cluster that is installed as its AgentClusterInstall says, and not as the service says: it is restored at any moment.
func (r *Reconciler) comesBack(ctx context.Context, deployment *hivev1.ClusterDeployment) (bool, error) {
	var installs hiveextv1.AgentClusterInstallList
	if err := r.Client.List(ctx, &installs, client.InNamespace(deployment.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the AgentClusterInstalls of namespace %s: %w", deployment.Namespace, err)
	}
	for i := range installs.Items {
		install := &installs.Items[i]
		if ref := deployment.Spec.ClusterInstallRef; ref != nil && ref.Name != install.Name {
			continue
		}
		if install.Spec.ClusterDeploymentRef.Name == deployment.Name && WasInstalled(install) {
			return true, nil
		}
	}
	return false, nil
}

// WasInstalled is true for an object that says that its cluster was installed: both are written when that is done, and an installed cluster stays installed.
func WasInstalled(install *hiveextv1.AgentClusterInstall) bool {
	return install.Spec.ClusterMetadata != nil && hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallCompleted)
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

// addressesOf are those of the interfaces, with prefix length, no more than a host has of an inventory.
func addressesOf(interfaces []agentv1.Interface) []string {
	var found []string
	for i := range interfaces {
		found = append(found, slices.Concat(interfaces[i].IPV4Addresses, interfaces[i].IPV6Addresses)...)
	}
	return cut(found, maxAddresses)
}

// LostRelease is true for an Agent whose status says that its machine is not free yet, where the host h knows of no release: the service lost its data since, or works with those of before.
func LostRelease(agent *agentv1.Agent, h *domain.Host) bool {
	said := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased)
	return h != nil && h.ClusterID == "" && h.Release.StartedAt.IsZero() && said != nil && said.Status == corev1.ConditionFalse &&
		said.LastTransitionTime.After(h.ReleaseMovedAt)
}

// restoreRelease keeps a machine from its next cluster that was to be wiped before the service lost its data.
func (r *Reconciler) restoreRelease(ctx context.Context, seen *snapshot) error {
	var cluster domain.KubeRef
	if left := seen.agent.Status.DeprovisionInfo; left != nil {
		cluster = domain.KubeRef{Namespace: left.ClusterNamespace, Name: left.ClusterName}
	}
	wipe := cmp.Or(poolWipe(seen.agent), domain.Wipe(seen.agent.Annotations[agentv1.MachinePoolWipeAnnotation])) // the pool may be gone
	if err := r.Service.RestoreRelease(ctx, domain.Kubernetes, seen.key, cluster, wipe); err != nil {
		return client.IgnoreNotFound(err)
	}
	return r.observeHost(ctx, seen)
}
