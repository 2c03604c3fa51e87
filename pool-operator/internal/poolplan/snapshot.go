// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
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
type Cluster struct {
	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string
	Created         time.Time
	// ClusterName is the short name, from the inventory if the pool has one.
	ClusterName string
	// Version of the pool that the cluster was made from; empty when it does not say.
	Version string

	Deleting bool
	// Marked clusters are to be removed: their claim was deleted, or somebody asked for it.
	Marked bool
	// Protected clusters are never deleted.
	Protected bool
	// PowerPaused clusters keep their power state.
	PowerPaused bool

	// ClaimName and ClaimUID are of the claim that the cluster records; empty when it is free.
	ClaimName string
	ClaimUID  types.UID

	Installed   bool
	InstalledAt time.Time
	// InstallStopped is why installation failed for good; nil when it did not.
	InstallStopped *Failure

	// Power is what spec asks for, ObservedPower what status reports.
	Power         hivev1.PowerState
	ObservedPower hivev1.PowerState
	// ResumingSince is since when the cluster should run and does not say that it sleeps; zero when it is not resuming.
	ResumingSince time.Time
	// ResumeTook is how long the cluster took to resume, the last time it did; 0 if it never did.
	ResumeTook time.Duration
}

// Failure is why a cluster is broken.
type Failure struct {
	Reason  string
	Message string
}

// Namespace is a namespace that was made for a cluster of the pool.
type Namespace struct {
	Name     string
	UID      types.UID
	Deleting bool
	// Occupied says that there is a ClusterDeployment in it, of whatever pool.
	Occupied bool
}

// Claim is a ClusterClaim that names the pool.
type Claim struct {
	Name    string
	UID     types.UID
	Created time.Time
	// Namespace is that of the cluster that the claim took; empty while it waits.
	Namespace string
	Deleting  bool
	// Expires is when the claim leaves the queue; zero means never.
	Expires time.Time
}

// sorted returns the clusters in the order in which claims get them: by age, then by name, then by UID.
func sorted(clusters []Cluster) []Cluster {
	out := slices.Clone(clusters)
	slices.SortFunc(out, func(a, b Cluster) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}
