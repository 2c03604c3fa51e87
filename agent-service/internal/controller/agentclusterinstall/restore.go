// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// observeLoss finds out whether the service lost a cluster that is installed.
func (r *Reconciler) observeLoss(ctx context.Context, seen *snapshot) error {
	known := seen.cluster != nil && hostplan.TakesDayTwo(seen.cluster)
	if known || seen.deployment == nil || !agentctl.WasInstalled(seen.install) {
		return nil
	}
	completed := hivev1.FindCondition(seen.install.Status.Conditions, hivev1.ClusterInstallCompleted)
	seen.restored = &domain.Restored{InstalledAt: completed.LastTransitionTime.UTC()}
	secret, name := &corev1.Secret{}, seen.install.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: seen.install.Namespace, Name: name}, secret)
	switch {
	case apierrors.IsForbidden(err) && seen.obstacle == nil:
		seen.obstacle = domain.Refuse(domain.Invalid, "SecretForbidden", "the service lost its data, and the Secret %q with the kubeconfig of the cluster may not be read: bind the ClusterRole agent-service-secrets in namespace %s",
			name, seen.install.Namespace)
	case apierrors.IsForbidden(err): // it says something else first
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading the kubeconfig of AgentClusterInstall %s: %w", seen.key, err)
	}
	seen.restored.Kubeconfig = string(secret.Data[hivev1.SecretKeyKubeconfig])
	return nil
}

// installedBefore is true for a host whose Agent says that it was installed in its cluster before the service lost its data. It is not installed again.
func (r *Reconciler) installedBefore(ctx context.Context, h *domain.Host) (bool, error) {
	var agents agentv1.AgentList
	if err := r.Client.List(ctx, &agents, client.MatchingFields{agentctl.HostIndex: h.String()}); err != nil {
		return false, fmt.Errorf("looking for the Agent of host %s: %w", h.HostKey, err)
	}
	for i := range agents.Items {
		if agentctl.InstalledBefore(&agents.Items[i], h) {
			return true, nil
		}
	}
	return false, nil
}
