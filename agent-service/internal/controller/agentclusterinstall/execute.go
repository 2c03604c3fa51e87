// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/workload"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
)

// owner is the field owner of what the controller applies.
const owner = "agent-service"

// credentials says in the spec how to get into an installed cluster, and keeps its kubeconfig in a Secret once the service has it.
func (r *Reconciler) credentials(ctx context.Context, seen *snapshot) error {
	c := seen.cluster
	if c == nil || seen.deployment == nil || c.Imported || c.Status != lifecycle.ClusterInstalled && c.Status != lifecycle.ClusterAddingHosts {
		return nil
	}
	metadata := &hivev1.ClusterMetadata{
		ClusterID: c.ID, InfraID: c.Name + "-" + c.ID[:8], AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: seen.deployment.Name + "-admin-kubeconfig"},
	}
	if there := seen.install.Spec.ClusterMetadata; there != nil {
		metadata = there.DeepCopy()
	}
	if c.Kubeconfig != "" {
		secret := corev1ac.Secret(metadata.AdminKubeconfigSecretRef.Name, seen.install.Namespace).
			WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(hivev1.GroupVersion.String()).WithKind("ClusterDeployment").
				WithName(seen.deployment.Name).WithUID(seen.deployment.UID)).
			WithData(map[string][]byte{hivev1.SecretKeyKubeconfig: []byte(c.Kubeconfig)})
		if err := r.Client.Apply(ctx, secret, client.FieldOwner(owner), client.ForceOwnership); err != nil {
			return fmt.Errorf("keeping the kubeconfig of AgentClusterInstall %s: %w", seen.key, err)
		}
	}
	if c.ControlPlane != nil {
		if err := r.nodeAccess(ctx, seen, metadata); err != nil {
			return err
		}
	}
	before := seen.install.DeepCopy()
	seen.install.Spec.ClusterMetadata = metadata
	if equality.Semantic.DeepEqual(before.Spec, seen.install.Spec) {
		return nil
	}
	if err := r.Client.Patch(ctx, seen.install, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("saying how to get into the cluster of AgentClusterInstall %s: %w", seen.key, err)
	}
	return nil
}

// nodeAccess writes the Secret by which machines join an installed cluster whose host runs the control plane.
func (r *Reconciler) nodeAccess(ctx context.Context, seen *snapshot, metadata *hivev1.ClusterMetadata) error {
	plane, nodeManager, err := r.Service.ControlPlane(ctx, domain.Kubernetes, seen.cluster.ID)
	if err != nil || plane == nil {
		return err
	}
	if metadata.NodeAccessSecretRef == nil {
		metadata.NodeAccessSecretRef = &hivev1.LocalObjectReference{Name: seen.deployment.Name + "-node-access"}
	}
	secret := corev1ac.Secret(metadata.NodeAccessSecretRef.Name, seen.install.Namespace).WithType(hivev1.SecretTypeNodeAccess).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(hivev1.GroupVersion.String()).WithKind("ClusterDeployment").
			WithName(seen.deployment.Name).WithUID(seen.deployment.UID)).
		WithData(workload.OwnAccessData(plane, nodeManager))
	if err := r.Client.Apply(ctx, secret, client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("keeping the node access of AgentClusterInstall %s: %w", seen.key, err)
	}
	return nil
}

// freeAgents removes a cluster that is gone from the Agents that were for it, but for those whose InfraEnv is the cluster's.
func (r *Reconciler) freeAgents(ctx context.Context, seen *snapshot) error {
	var agents agentv1.AgentList
	if err := r.Client.List(ctx, &agents, client.MatchingFields{agentctl.ClusterIndex: deploymentKey(seen.install).String()}); err != nil {
		return fmt.Errorf("listing the Agents of AgentClusterInstall %s: %w", seen.key, err)
	}
	var failures []error
	for i := range agents.Items {
		agent := &agents.Items[i]
		theirs, err := r.ofCluster(ctx, agent)
		if err != nil || theirs {
			failures = append(failures, err)
			continue
		}
		before := agent.DeepCopy()
		agent.Spec.ClusterDeploymentName = nil
		err = r.Client.Patch(ctx, agent, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		failures = append(failures, outcome.IgnoreGone(err))
	}
	return errors.Join(failures...)
}

// ofCluster is true for Agents whose InfraEnv binds them to a cluster for good.
func (r *Reconciler) ofCluster(ctx context.Context, agent *agentv1.Agent) (bool, error) {
	for _, one := range agent.OwnerReferences {
		var infraEnvs agentv1.InfraEnvList
		if err := r.Client.List(ctx, &infraEnvs, client.MatchingFields{infraenv.UIDIndex: string(one.UID)}); err != nil {
			return false, fmt.Errorf("looking for the InfraEnv of Agent %s: %w", agent.Name, err)
		}
		if len(infraEnvs.Items) > 0 {
			return infraEnvs.Items[0].Spec.ClusterRef != nil, nil
		}
	}
	return false, nil
}
