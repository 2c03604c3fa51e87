// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// pass is one reconcile of one pool.
type pass struct {
	pool      *hivev1.ClusterPool
	snapshot  poolplan.Snapshot
	memory    *poolMemory
	sources   sources
	yieldTime yieldTime
}

// observe reads everything that a decision about the pool is made from, from the cache.
func (r *Reconciler) observe(ctx context.Context, pool *hivev1.ClusterPool) (*pass, error) {
	p := r.newPass(pool)
	// How far the caches are is asked first: what is read afterwards can only be newer.
	view, err := r.Progress.View(ctx)
	if err != nil {
		return nil, err
	}
	p.snapshot.View = view
	clusters := &hivev1.ClusterDeploymentList{}
	if err := r.Client.List(ctx, clusters, client.MatchingFields{indexPool: poolKey(pool.Namespace, pool.Name)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing clusters of pool %s/%s: %w", pool.Namespace, pool.Name, err)
	}
	claims := &hivev1.ClusterClaimList{}
	if err := r.Client.List(ctx, claims, client.MatchingFields{indexPool: poolKey(pool.Namespace, pool.Name)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing claims of pool %s/%s: %w", pool.Namespace, pool.Name, err)
	}
	return p, r.complete(ctx, p, clusters.Items, claims.Items)
}

// observeLive reads the pool and then its clusters and claims from the API server, so that the view is as new as can be.
func (r *Reconciler) observeLive(ctx context.Context, key types.NamespacedName) (*pass, error) {
	pool := &hivev1.ClusterPool{}
	if err := r.Live.Get(ctx, key, pool); err != nil {
		return nil, err
	}
	p := r.newPass(pool)
	clusters := &hivev1.ClusterDeploymentList{}
	if err := r.Live.List(ctx, clusters, client.MatchingLabels{
		hivev1.LabelClusterPoolNamespace: pool.Namespace, hivev1.LabelClusterPoolName: pool.Name,
	}); err != nil {
		return nil, fmt.Errorf("listing clusters of pool %s/%s: %w", pool.Namespace, pool.Name, err)
	}
	claims := &hivev1.ClusterClaimList{}
	if err := r.Live.List(ctx, claims, client.InNamespace(pool.Namespace)); err != nil {
		return nil, fmt.Errorf("listing claims of pool %s/%s: %w", pool.Namespace, pool.Name, err)
	}
	p.snapshot.Live = true
	p.snapshot.View = hivev1.ClusterPoolObservation{ClusterDeployments: clusters.ResourceVersion, ClusterClaims: claims.ResourceVersion}
	return p, r.complete(ctx, p, clusters.Items, claims.Items)
}

func (r *Reconciler) newPass(pool *hivev1.ClusterPool) *pass {
	p := &pass{pool: pool, memory: r.memory.of(client.ObjectKeyFromObject(pool), pool.UID)}
	p.sources.pool = pool
	p.snapshot = poolplan.Snapshot{Pool: pool, Slugs: slugs(poolplan.SliceOfPass + 5)}
	return p
}

// complete adds the rest of the snapshot.
func (r *Reconciler) complete(ctx context.Context, p *pass, clusters []hivev1.ClusterDeployment, claims []hivev1.ClusterClaim) error {
	for i := range clusters {
		member, err := r.isMember(ctx, p.pool, &clusters[i])
		if err != nil {
			return err
		}
		if member {
			p.snapshot.Clusters = append(p.snapshot.Clusters, poolview.ClusterOf(&clusters[i]))
		}
	}
	for i := range claims {
		if claims[i].Spec.ClusterPoolName == p.pool.Name {
			p.snapshot.Claims = append(p.snapshot.Claims, poolview.ClaimOf(&claims[i]))
		}
	}
	namespaces, err := r.namespacesOf(ctx, client.ObjectKeyFromObject(p.pool))
	if err != nil {
		return err
	}
	p.snapshot.Namespaces = namespaces
	p.snapshot.Missing, err = r.missingDependencies(ctx, p)
	if err != nil {
		return err
	}
	r.memory.change(func() {
		p.recall()
		p.memory.recallArrivals(p.snapshot.Claims, p.pool.Status.RunningCountRecommendation, r.Clock.Now())
		p.memory.resume(p.pool.Status.Provisioning, p.snapshot.Sources, r.Clock.Now())
		p.snapshot.Changed = p.memory.changedAt
		p.snapshot.RecentClaims = p.memory.countArrivals(p.snapshot.Claims, r.Clock.Now())
	})
	return nil
}

// isMember says whether a cluster is the pool's. One that only names the pool is none of its clusters, and is reported once.
func (r *Reconciler) isMember(ctx context.Context, pool *hivev1.ClusterPool, cd *hivev1.ClusterDeployment) (bool, error) {
	ref := cd.Spec.ClusterPoolRef
	if ref == nil || ref.Namespace != pool.Namespace || ref.PoolName != pool.Name {
		return false, nil
	}
	member, first, err := r.members.Member(ctx, cd)
	if err != nil {
		return false, fmt.Errorf("looking for the pool of cluster %s/%s: %w", cd.Namespace, cd.Name, err)
	}
	if first {
		log.FromContext(ctx).Info("ignored a cluster that names the pool without belonging to it", "ClusterDeployment", client.ObjectKeyFromObject(cd))
		r.Recorder.Eventf(pool, cd, corev1.EventTypeWarning, reasonNotAMember, "Observe",
			"Ignored ClusterDeployment %s/%s: it names the pool, but its namespace has no labels %s=%s and %s=%s", cd.Namespace, cd.Name,
			hivev1.LabelNamespaceClusterPoolNamespace, pool.Namespace, hivev1.LabelNamespaceClusterPoolName, pool.Name)
	}
	return member, nil
}

// reasonNotAMember is the reason of the event about a ClusterDeployment that names a pool without belonging to it.
const reasonNotAMember = "NotAMember"

// recall puts what the API server answered earlier into the snapshot, and forgets answers about operations that are over.
func (p *pass) recall() {
	outstanding := map[string]bool{}
	for _, op := range p.pool.Status.Operations {
		outstanding[op.Namespace] = true
		outstanding[doneKey(op.Kind, op.Namespace)] = true
	}
	p.memory.keep(outstanding)
	prune(p.memory.changed, p.objects())
	p.snapshot.Refused, p.snapshot.Absent = map[string]string{}, map[string]bool{}
	maps.Copy(p.snapshot.Refused, p.memory.refused)
	maps.Copy(p.snapshot.Absent, p.memory.absent)
}

// objects are the clusters and namespaces in view.
func (p *pass) objects() map[string]bool {
	out := map[string]bool{}
	for i := range p.snapshot.Clusters {
		out[clusterObject(p.snapshot.Clusters[i].Namespace)] = true
	}
	for i := range p.snapshot.Namespaces {
		out[namespaceObject(p.snapshot.Namespaces[i].Name)] = true
	}
	return out
}

// namespacesOf reads the namespaces that were made for clusters of a pool.
func (r *Reconciler) namespacesOf(ctx context.Context, pool types.NamespacedName) ([]poolplan.Namespace, error) {
	list := metadataList("Namespace")
	if err := r.Metadata.List(ctx, list, client.MatchingFields{indexPool: poolKey(pool.Namespace, pool.Name)}); err != nil {
		return nil, fmt.Errorf("listing namespaces of pool %s: %w", pool, err)
	}
	var out []poolplan.Namespace
	for i := range list.Items {
		ns := &list.Items[i]
		var inside hivev1.ClusterDeploymentList
		if err := r.Client.List(ctx, &inside, client.InNamespace(ns.Name), client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing clusters in namespace %s: %w", ns.Name, err)
		}
		out = append(out, poolplan.Namespace{Name: ns.Name, UID: ns.UID, Deleting: !ns.DeletionTimestamp.IsZero(), Occupied: len(inside.Items) > 0})
	}
	return out, nil
}

// slugs makes n random slugs.
func slugs(n int) []string {
	random := make([]byte, n*poolplan.SlugLength)
	_, _ = rand.Read(random) // never fails; the program ends instead
	for i := range random {
		random[i] = poolplan.SlugAlphabet[int(random[i])%len(poolplan.SlugAlphabet)]
	}
	out := make([]string, n)
	for i := range out {
		out[i] = string(random[i*poolplan.SlugLength : (i+1)*poolplan.SlugLength])
	}
	return out
}

func metadataList(kind string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
	return list
}
