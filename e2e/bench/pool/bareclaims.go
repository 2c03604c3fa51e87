// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

// bareClaims does what serving claims comes to without an operator, and says how long each takes when all begin at once: a claim is created, names its
// cluster, is recorded there, its subject gets a Role and a RoleBinding, and it says so. There is no other load meanwhile. The pool's clusters are free.
func (w *world) bareClaims(ctx context.Context, pool string) ([]time.Duration, error) {
	operator, err := w.asOperator()
	if err != nil {
		return nil, err
	}
	var free []string
	clusters := w.clusters(ctx, pool)
	for i := range clusters {
		if clusters[i].Spec.ClusterPoolRef.ClaimName == "" {
			free = append(free, clusters[i].Name)
		}
	}
	took, errs := make([]time.Duration, len(free)), make([]error, len(free))
	var wait sync.WaitGroup
	for i, cluster := range free {
		wait.Go(func() {
			started := time.Now()
			errs[i] = w.bareClaim(ctx, operator, pool, cluster)
			took[i] = time.Since(started)
		})
	}
	wait.Wait()
	return took, errors.Join(errs...)
}

// asOperator makes a client with the operator's name and rights: only the operator may assign a cluster to a claim.
func (w *world) asOperator() (client.Client, error) {
	config := rest.CopyConfig(w.Admin)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:muster-pool-operator:pool-operator",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	c, err := client.New(config, client.Options{Scheme: w.user.Scheme(), Mapper: w.user.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

func (w *world) bareClaim(ctx context.Context, operator client.Client, pool, cluster string) error {
	claim := newClaim("bare-"+cluster, pool)
	if err := w.user.Create(ctx, claim); err != nil {
		return err
	}
	if err := mergePatch(ctx, operator, claim, map[string]any{
		"metadata": map[string]any{"resourceVersion": claim.ResourceVersion, "finalizers": []string{hivev1.FinalizerClusterClaim}},
		"spec":     map[string]any{"namespace": cluster},
	}); err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339)
	cd := &hivev1.ClusterDeployment{}
	cd.Namespace, cd.Name = cluster, cluster
	if err := mergePatch(ctx, operator, cd, map[string]any{"spec": map[string]any{
		"powerState":     hivev1.PowerStateRunning,
		"clusterPoolRef": map[string]any{"claimName": claim.Name, "claimUID": claim.UID, "claimedTimestamp": now},
	}}); err != nil {
		return err
	}
	owner := map[string]any{"namespace": cluster, "name": hivev1.ClaimOwnerRoleName}
	const group = "rbac.authorization.k8s.io"
	for _, object := range []map[string]any{
		{"apiVersion": group + "/v1", "kind": "Role", "metadata": owner, "rules": []any{map[string]any{
			"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get"}, "resourceNames": []any{secretName(cluster, 0), secretName(cluster, 1)},
		}}},
		{
			"apiVersion": group + "/v1", "kind": "RoleBinding", "metadata": owner,
			"roleRef":  map[string]any{"apiGroup": group, "kind": "Role", "name": hivev1.ClaimOwnerRoleName},
			"subjects": []any{map[string]any{"apiGroup": group, "kind": "User", "name": subject}},
		},
	} {
		config := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: object})
		if err := operator.Apply(ctx, config, bareOwner, client.ForceOwnership); err != nil {
			return err
		}
	}
	status := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": hivev1.GroupVersion.String(), "kind": "ClusterClaim", "metadata": map[string]any{"namespace": claim.Namespace, "name": claim.Name},
		"status": map[string]any{"conditions": []any{
			bareCondition(hivev1.ClusterClaimPending, "False", hivev1.ReasonClusterClaimed, now),
			bareCondition(hivev1.ClusterClaimRunning, "True", hivev1.ReasonRunning, now),
		}},
	}}
	return operator.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(status), bareOwner, client.ForceOwnership)
}

// bareOwner is the field owner of what is applied bare.
const bareOwner = client.FieldOwner("bench-bare")

func bareCondition(kind, status, reason, at string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": "written bare", "lastProbeTime": at, "lastTransitionTime": at}
}

// latenciesBesideBare stops the operator and records how long claims take without it, for comparison with how long they waited.
func (w *world) latenciesBesideBare(ctx context.Context, pool string, waited []time.Duration) error {
	w.StopOperator()
	bare, err := w.bareClaims(ctx, pool)
	if err != nil {
		return fmt.Errorf("bare claims: %w", err)
	}
	w.Figure("bare_p50_ms", milliseconds(bench.Percentile(bare, 0.5)), "ms", bench.NoTarget)
	w.Figure("bare_p99_ms", milliseconds(bench.Percentile(bare, 0.99)), "ms", bench.NoTarget)
	w.Figure("p99_to_bare", bench.Percentile(waited, 0.99).Seconds()/bench.Percentile(bare, 0.99).Seconds(), "ratio", 1.25)
	w.Note("bare: %d claims at once, each the same six writes one after the other, no operator and no fill beside them", len(bare))
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
