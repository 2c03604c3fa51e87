// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

// writers is how many write at a time while a pool fills: the operator's ten and the stand-in's.
const writers = 10 + installers

const (
	// filledPool is the pool that was filled; bare writes change it too. No operator runs by then.
	filledPool = "fill"
	// barePool is the pool that the clusters of the bare writes say they are of.
	barePool = "bare"
)

// bareFill are the writes of a fill, per cluster in the order in which a fill does them.
func (w *testEnv) bareFill(size int, writes map[bench.Kind]int) bench.Bare {
	return bench.Bare{
		Writers: writers, Items: size, Writes: writes,
		Order: []bench.Kind{
			{Verb: "patch", Resource: "clusterpools"},
			{Verb: "patch", Resource: "clusterpools/status"},
			{Verb: "create", Resource: "namespaces"},
			{Verb: "create", Resource: "clusterdeployments"},
			{Verb: "create", Resource: "secrets"},
			{Verb: "patch", Resource: "clusterdeployments"},
			{Verb: "patch", Resource: "clusterdeployments/status"},
		},
		Write: w.bareWrite,
	}
}

// bareWrite does one write of a fill. No two of them are the same, so that the API server has to store each.
func (w *testEnv) bareWrite(ctx context.Context, kind bench.Kind, item, n int) error {
	name := fmt.Sprintf("%s-%05d", barePool, item)
	cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: filledPool}}
	switch kind.Verb + " " + kind.Resource {
	case "patch clusterpools":
		return mergePatch(ctx, w.plain, pool, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"bench": fmt.Sprint(item, n)}}})
	case "patch clusterpools/status":
		return mergePatch(ctx, w.plain.Status(), pool, map[string]any{"status": bareTicket(item, n)})
	case "create namespaces":
		labels := map[string]string{hivev1.LabelNamespaceClusterPoolName: barePool, hivev1.LabelNamespaceClusterPoolNamespace: namespace}
		return w.plain.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	case "create clusterdeployments":
		return w.plain.Create(ctx, bareCluster(name))
	case "create secrets":
		s := secretOf(name, n%secretsPerInstallation)
		s.Name = fmt.Sprintf("%s-%d", s.Name, n)
		return w.plain.Create(ctx, s)
	case "patch clusterdeployments":
		patch := installedPatch(name)
		patch["metadata"] = map[string]any{"annotations": map[string]any{"bench": fmt.Sprint(n)}}
		return mergePatch(ctx, w.plain, cd, patch)
	case "patch clusterdeployments/status":
		return mergePatch(ctx, w.plain.Status(), cd, map[string]any{"status": statusOf(name, hivev1.PowerStateHibernating, time.Now().Add(time.Duration(n)*time.Second))})
	}
	return fmt.Errorf("there is no bare write for %s %s", kind.Verb, kind.Resource)
}

// bareCluster is a ClusterDeployment as a pool makes it.
func bareCluster(name string) *hivev1.ClusterDeployment {
	pool := newPool(barePool, 1, 0)
	return &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name, Name: name,
			Labels:      map[string]string{hivev1.LabelClusterPoolNamespace: namespace, hivev1.LabelClusterPoolName: barePool},
			Annotations: map[string]string{hivev1.AnnotationClusterPoolSpecHash: "0123456789abcdef"},
		},
		Spec: hivev1.ClusterDeploymentSpec{
			ClusterName: name, BaseDomain: pool.Spec.BaseDomain, Platform: pool.Spec.Platform, PowerState: hivev1.PowerStateHibernating,
			PullSecretRef:  &hivev1.LocalObjectReference{Name: name + "-pull-secret"},
			ClusterPoolRef: &hivev1.ClusterPoolReference{Namespace: namespace, PoolName: barePool},
			Provisioning: &hivev1.Provisioning{
				ImageSetRef:            &hivev1.ClusterImageSetReference{Name: pool.Spec.ImageSetRef.Name},
				InstallConfigSecretRef: &hivev1.LocalObjectReference{Name: name + "-pull-secret"},
			},
		},
	}
}

// bareTicket is a status as large as one with a slice of operations.
func bareTicket(item, n int) map[string]any {
	var operations []any
	for i := range 20 {
		operations = append(operations, map[string]any{
			"namespace": fmt.Sprintf("bare-%05d-%d-%d", item, n, i), "kind": hivev1.OperationCreate, "why": "PoolTooSmall",
			"recordedAt": time.Now().UTC().Format(time.RFC3339),
		})
	}
	return map[string]any{"size": item, "standby": n, "operations": operations}
}
