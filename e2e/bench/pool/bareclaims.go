// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/e2e/bench"
)

// bareClaims does what serving claims comes to without an operator, and says how long each takes when all begin at once: a claim is created, names its
// cluster, is recorded there, its subject gets the Role and the RoleBinding that the operator would write, and it says so. There is no other load meanwhile. The pool's clusters are free.
func (w *testEnv) bareClaims(ctx context.Context, pool string) ([]time.Duration, error) {
	operator, err := w.asOperator()
	if err != nil {
		return nil, err
	}
	var free []string
	var served string
	clusters := w.clusters(ctx, pool)
	for i := range clusters {
		if clusters[i].Spec.ClusterPoolRef.ClaimName == "" {
			free = append(free, clusters[i].Name)
		} else {
			served = clusters[i].Name
		}
	}
	rights, err := w.rightsOf(ctx, served)
	if err != nil {
		return nil, fmt.Errorf("reading the rights of a served claim: %w", err)
	}
	took, errs := make([]time.Duration, len(free)), make([]error, len(free))
	var wait sync.WaitGroup
	for i, cluster := range free {
		wait.Go(func() {
			started := time.Now()
			errs[i] = w.bareClaim(ctx, operator, rights, pool, cluster)
			took[i] = time.Since(started)
		})
	}
	wait.Wait()
	return took, errors.Join(errs...)
}

// asOperator makes a client with the operator's name and rights: only the operator may assign a cluster to a claim.
func (w *testEnv) asOperator() (client.Client, error) {
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

// rights are what the operator wrote for one claim; every claim gets the same.
type rights struct {
	cluster string
	role    rbacv1.Role
	binding rbacv1.RoleBinding
}

// rightsOf reads what the operator wrote for the claim of a cluster.
func (w *testEnv) rightsOf(ctx context.Context, cluster string) (rights, error) {
	out, key := rights{cluster: cluster}, client.ObjectKey{Namespace: cluster, Name: hivev1.ClaimOwnerRoleName}
	err := errors.Join(w.user.Get(ctx, key, &out.role), w.user.Get(ctx, key, &out.binding))
	return out, err
}

// of returns the rights for another cluster, as they are created there.
func (r rights) of(cd *hivev1.ClusterDeployment) []client.Object {
	meta := metav1.ObjectMeta{Namespace: cd.Name, Name: hivev1.ClaimOwnerRoleName, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: hivev1.GroupVersion.String(), Kind: "ClusterDeployment", Name: cd.Name, UID: cd.UID},
	}}
	role, binding := &rbacv1.Role{ObjectMeta: meta}, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: r.binding.Subjects, RoleRef: r.binding.RoleRef}
	for i := range r.role.Rules {
		rule := r.role.Rules[i].DeepCopy()
		for n := range rule.ResourceNames {
			rule.ResourceNames[n] = strings.ReplaceAll(rule.ResourceNames[n], r.cluster, cd.Name)
		}
		role.Rules = append(role.Rules, *rule)
	}
	return []client.Object{role, binding}
}

func (w *testEnv) bareClaim(ctx context.Context, operator client.Client, rights rights, pool, cluster string) error {
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
	for _, object := range rights.of(cd) {
		if err := operator.Create(ctx, object, bareOwner); err != nil {
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
func (w *testEnv) latenciesBesideBare(ctx context.Context, pool string, waited []time.Duration) error {
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
