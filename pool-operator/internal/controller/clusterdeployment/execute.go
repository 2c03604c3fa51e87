// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// execute carries out the actions in order. Refused is why one of them could not be done. The next observation holds what a runtime says about that, so it is no error here.
func (r *Reconciler) execute(ctx context.Context, cluster *hivev1.ClusterDeployment, actions []hostedplan.Action) (refused *provision.Problem, err error) {
	for _, action := range actions {
		log := logf.FromContext(ctx).WithValues("action", actionName(action), "why", action.Purpose())
		err := r.do(ctx, cluster, action)
		r.Metrics.acted(action, err != nil)
		if problem, ok := errors.AsType[*provision.Problem](err); ok {
			log.Info("hosted cluster could not be changed", "reason", problem.Reason, "message", problem.Message)
			return problem, nil
		}
		if err != nil {
			return nil, err
		}
		log.Info("hosted cluster was changed")
	}
	return nil, nil
}

func (r *Reconciler) do(ctx context.Context, cluster *hivev1.ClusterDeployment, action hostedplan.Action) error {
	switch a := action.(type) {
	case hostedplan.AddFinalizer:
		return r.writer.patch(ctx, cluster, "adding the finalizer to", func(c *hivev1.ClusterDeployment) {
			controllerutil.AddFinalizer(c, hivev1.FinalizerDeprovision)
			labelPlatform(c)
		})
	case hostedplan.RemoveFinalizer:
		return r.writer.patch(ctx, cluster, "removing the finalizer from", func(c *hivev1.ClusterDeployment) {
			controllerutil.RemoveFinalizer(c, hivev1.FinalizerDeprovision)
		})
	case hostedplan.Start:
		return r.start(ctx, cluster, a)
	case hostedplan.Renew:
		return r.Runtime.Renew(ctx, refOf(cluster), specOf(cluster))
	case hostedplan.Stop:
		return r.Runtime.Stop(ctx, refOf(cluster))
	case hostedplan.Delete:
		return r.Runtime.Delete(ctx, refOf(cluster))
	case hostedplan.DeleteMachinePools:
		return r.deleteMachinePools(ctx, cluster, a.Names)
	case hostedplan.CopyPullSecret:
		return r.copyPullSecret(ctx, cluster)
	case hostedplan.PublishAccess:
		return r.publishAccess(ctx, cluster, a.Metadata)
	case hostedplan.PublishNodeAccess:
		return r.publishNodeAccess(ctx, cluster, a)
	case hostedplan.RecordInstalled:
		return r.writer.patch(ctx, cluster, "recording the installation of", func(c *hivev1.ClusterDeployment) {
			c.Spec.Installed = true
			c.Spec.ClusterMetadata = &a.Metadata
			if c.Labels == nil {
				c.Labels = map[string]string{}
			}
			maps.Copy(c.Labels, a.Labels)
		})
	}
	return fmt.Errorf("hosted cluster %s: no way to carry out %T", refOf(cluster), action)
}

// labelPlatform puts the label on the cluster from which its column PLATFORM is read, unless it has one.
func labelPlatform(c *hivev1.ClusterDeployment) {
	if c.Labels[hivev1.LabelClusterPlatform] != "" {
		return
	}
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels[hivev1.LabelClusterPlatform] = c.Spec.Platform.Name()
}

// start starts the cluster. Before there is anything of it, the API server is asked whether the cluster is still wanted: data that is laid down for a
// ClusterDeployment that went away, while the cache did not know, would have no owner.
func (r *Reconciler) start(ctx context.Context, cluster *hivev1.ClusterDeployment, a hostedplan.Start) error {
	if a.Why == hostedplan.WhyNew {
		live := &hivev1.ClusterDeployment{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cluster), live); err != nil {
			return fmt.Errorf("reading ClusterDeployment %s before its first start: %w", refOf(cluster), err)
		}
		if live.UID != cluster.UID || live.DeletionTimestamp != nil {
			return &provision.Problem{Reason: provision.ReasonRefused, Message: "the ClusterDeployment was deleted meanwhile"}
		}
	}
	return r.Runtime.Start(ctx, refOf(cluster), specOf(cluster))
}

// specOf is what a runtime needs to know to start the cluster.
func specOf(cluster *hivev1.ClusterDeployment) provision.Spec {
	spec := provision.Spec{ClusterName: cluster.Spec.ClusterName, BaseDomain: cluster.Spec.BaseDomain}
	if hosted := cluster.Spec.Platform.Hosted; hosted != nil && hosted.Audit != hivev1.AuditNone {
		spec.Audit = string(hosted.Audit)
	}
	if ref := cluster.Spec.PullSecretRef; ref != nil {
		spec.PullSecret = ref.Name
	}
	spec.Nodes = nodesOf(cluster)
	return spec
}
