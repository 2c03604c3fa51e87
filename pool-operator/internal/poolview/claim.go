// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolview

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Claim is what a ClusterClaim says, as far as the queue of its pool is concerned.
type Claim struct {
	Name    string
	UID     types.UID
	Created time.Time
	// Namespace is that of the cluster that the operator assigned to the claim; empty when it has none.
	Namespace string
	// Expires is when spec.queueTimeout is over; zero when it never is.
	Expires time.Time
	// Deleting claims neither wait nor take.
	Deleting bool
	// Paused claims keep their place and are given nothing; no cluster is made for them meanwhile.
	Paused bool
}

// ClaimOf reads a claim. A spec.namespace without the operator's finalizer does not come from the operator, which writes both at once, and counts for nothing.
func ClaimOf(claim *hivev1.ClusterClaim) Claim {
	c := Claim{
		Name: claim.Name, UID: claim.UID, Created: claim.CreationTimestamp.Time,
		Deleting: !claim.DeletionTimestamp.IsZero(), Paused: hivev1.IsTrue(claim.Annotations, hivev1.AnnotationReconcilePause),
	}
	if slices.Contains(claim.Finalizers, hivev1.FinalizerClusterClaim) {
		c.Namespace = claim.Spec.Namespace
	}
	if timeout := claim.Spec.QueueTimeout; timeout != nil {
		c.Expires = claim.CreationTimestamp.Add(timeout.Duration)
	}
	return c
}

// Left says whether the claim has waited for its queueTimeout.
func (c *Claim) Left(now time.Time) bool { return !c.Expires.IsZero() && !now.Before(c.Expires) }

// ByArrival orders claims as they are served: first come, first served.
func ByArrival(a, b Claim) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// Waiting returns the claims that wait for a cluster, first come first. A claim waits when it was assigned none, no cluster records it, and its time in the
// queue is not over. A claim that was assigned a cluster which another claim then got waits again.
func Waiting(now time.Time, claims []Claim, clusters []Cluster) []Claim {
	recorded := make(map[types.UID]bool)
	at := make(map[string]*Cluster)
	for i := range clusters {
		c := &clusters[i]
		at[c.Namespace] = c
		if c.ClaimUID != "" {
			recorded[c.ClaimUID] = true
		}
	}
	var waiting []Claim
	for _, claim := range claims {
		assigned := claim.Namespace != "" && !lost(at[claim.Namespace], claim)
		if recorded[claim.UID] || claim.Deleting || claim.Paused || assigned || claim.Left(now) {
			continue
		}
		waiting = append(waiting, claim)
	}
	slices.SortFunc(waiting, ByArrival)
	return waiting
}

// lost says whether the cluster that the claim was assigned records another claim.
func lost(c *Cluster, claim Claim) bool {
	switch {
	case c == nil:
		return false
	case c.ClaimUID != "":
		return c.ClaimUID != claim.UID
	case c.ClaimName != "":
		return c.ClaimName != claim.Name
	}
	return false
}

// Named are the namespaces of clusters that claims were assigned.
func Named(claims []Claim) map[string]bool {
	named := make(map[string]bool)
	for _, c := range claims {
		if c.Namespace != "" {
			named[c.Namespace] = true
		}
	}
	return named
}

// Free returns the clusters of the pool that a claim may get, in no particular order: installed ones that work, that no claim was assigned or is recorded in, and that neither
// the pool nor a user has decided to remove.
func Free(now time.Time, pool *Pool, claims []Claim, clusters []Cluster) []Cluster {
	named, toDelete := Named(claims), pool.ToDelete()
	var free []Cluster
	for i := range clusters {
		c := clusters[i]
		broken, _ := c.Broken(now, pool.Limits)
		if c.Usable() && broken == nil && !named[c.Namespace] && !toDelete[DeletionKey(c.Namespace, c.UID)] && !toDelete[DeletionKey(c.Namespace, "")] {
			free = append(free, c)
		}
	}
	return free
}

// Usable says whether a claim may get the cluster as far as the cluster itself knows: it is installed, has its data, is free, left to its pool, and not about to be removed.
func (c *Cluster) Usable() bool {
	return c.Installed && !c.Claimed() && !c.Deleting && !c.Marked && !c.Paused && c.InstallStopped == nil && !c.DataMissing
}

// Of says whether the cluster belongs to the pool that the claim names.
func (c *Cluster) Of(claim *hivev1.ClusterClaim) bool {
	return c.Pool == types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.ClusterPoolName}
}

// Records says whether the claim has the cluster. A claim is known by its pool's namespace and name, its own name and its UID; a cluster that was claimed before
// UIDs were recorded belongs to the claim that names it in turn.
func (c *Cluster) Records(claim *hivev1.ClusterClaim) bool {
	if !c.Of(claim) || c.ClaimName != claim.Name {
		return false
	}
	if c.ClaimUID == "" {
		return ClaimOf(claim).Namespace == c.Namespace
	}
	return c.ClaimUID == claim.UID
}

func joinLines(lines []string) string { return strings.Join(lines, "\n") }
