// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// Snapshot is all that a decision about a pool is made from.
type Snapshot struct {
	// Pool is the pool as it was read, status included. It is not changed.
	Pool *hivev1.ClusterPool
	// Clusters are all ClusterDeployments that belong to the pool, claimed and deleting ones included.
	Clusters []Cluster
	// Namespaces are the namespaces that were made for clusters of the pool.
	Namespaces []Namespace
	// Claims are the claims that name the pool.
	Claims []Claim
	// RecentClaims is how many claims arrived within the RecommendationWindow, those that are gone again included.
	RecentClaims int
	// Missing says what new clusters need and is not there, one sentence each.
	Missing []string
	// Changed is when the content of what new clusters are made from was last seen to change: the image set, or a Secret that the pool names; zero when it was not.
	Changed time.Time
	// Sources identifies the versions of all that new clusters are made from beside the spec: the image set, and the Secrets that the pool names. It changes with each write of a Secret, and
	// stands for nothing that is in it.
	Sources string
	// View says how new Clusters and Claims are.
	View hivev1.ClusterPoolObservation
	// Live says that Clusters and Claims were read from the API server after the pool was, so that no view can be newer.
	Live bool
	// Slugs are random suffixes for the names of new clusters, five lower-case letters and digits each.
	Slugs []string
	// Refused says why the API server refused to create a cluster for which there is an operation, by namespace.
	Refused map[string]string
	// Absent are the namespaces of withdrawn clusters that the API server was asked for and does not have.
	Absent map[string]bool
}

// Cluster is a ClusterDeployment of the pool.
type Cluster = poolview.Cluster

// Failure is why a cluster is broken.
type Failure = poolview.Failure

// Claim is a ClusterClaim that names the pool.
type Claim = poolview.Claim

// Namespace is a namespace that was made for a cluster of the pool.
type Namespace struct {
	Name     string
	UID      types.UID
	Deleting bool
	// Occupied says that there is a ClusterDeployment in it, of whatever pool.
	Occupied bool
}

// sorted returns the clusters in the order in which claims get them.
func sorted(clusters []Cluster) []Cluster {
	out := slices.Clone(clusters)
	slices.SortFunc(out, poolview.ByAge)
	return out
}
