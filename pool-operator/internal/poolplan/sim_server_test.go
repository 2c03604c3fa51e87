// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

// resource is a kind that a replica has a cache of.
type resource int

const (
	pools resource = iota
	clusters
	claims
	namespaces
	resources
)

// change is one event of a watch: the object as it was after a write, or its absence.
type change struct {
	version uint64
	key     string
	object  any
}

// claim is a claim and its resourceVersion.
type claim struct {
	poolplan.Claim
	version uint64
}

// apiServer is a model of an API server: it keeps one pool and what belongs to it, checks preconditions, and remembers every write for caches that lag.
type apiServer struct {
	now     time.Time
	version uint64
	uids    int

	pool       *hivev1.ClusterPool
	clusters   map[string]poolplan.Cluster
	claims     map[string]claim
	namespaces map[string]poolplan.Namespace
	logs       [resources][]change

	// missing says what new clusters lack.
	missing []string
	// refuse makes the server refuse the cluster.
	refuse func(namespace string) bool
	// used counts how often a cluster of a name was created.
	used map[string]int
	// kept are protected clusters that a replica was about to delete although it saw that they are.
	kept []string
	// writes counts successful writes of the operator.
	writes int
}

func newServer(pool *hivev1.ClusterPool) *apiServer {
	s := &apiServer{
		now:      time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		clusters: map[string]poolplan.Cluster{}, claims: map[string]claim{}, namespaces: map[string]poolplan.Namespace{},
		used: map[string]int{}, refuse: func(string) bool { return false },
	}
	pool.UID = "pool"
	s.putPool(pool)
	return s
}

func (s *apiServer) log(r resource, key string, object any) uint64 {
	s.version++
	s.logs[r] = append(s.logs[r], change{version: s.version, key: key, object: object})
	return s.version
}

func (s *apiServer) putPool(pool *hivev1.ClusterPool) {
	pool = pool.DeepCopy()
	pool.ResourceVersion = strconv.FormatUint(s.version+1, 10)
	s.pool = pool
	s.log(pools, pool.Name, pool)
}

func (s *apiServer) removePool() {
	s.log(pools, s.pool.Name, nil)
	s.pool = nil
}

func (s *apiServer) putCluster(c poolplan.Cluster) {
	c.ResourceVersion = strconv.FormatUint(s.version+1, 10)
	s.clusters[c.Namespace] = c
	s.log(clusters, c.Namespace, c)
}

func (s *apiServer) removeCluster(namespace string) {
	delete(s.clusters, namespace)
	s.log(clusters, namespace, nil)
}

func (s *apiServer) putClaim(c claim) {
	c.version = s.version + 1
	s.claims[c.Name] = c
	s.log(claims, c.Name, c)
}

func (s *apiServer) removeClaim(name string) {
	delete(s.claims, name)
	s.log(claims, name, nil)
}

func (s *apiServer) putNamespace(n poolplan.Namespace) {
	s.namespaces[n.Name] = n
	s.log(namespaces, n.Name, n)
}

func (s *apiServer) uid() types.UID {
	s.uids++
	return types.UID("uid-" + strconv.Itoa(s.uids))
}

// writeStatus is a status write with the resourceVersion of pool as precondition.
func (s *apiServer) writeStatus(pool *hivev1.ClusterPool, status hivev1.ClusterPoolStatus) bool {
	if !s.unchanged(pool) {
		return false
	}
	next := s.pool.DeepCopy()
	next.Status = *status.DeepCopy()
	s.putPool(next)
	s.writes++
	return true
}

func (s *apiServer) unchanged(pool *hivev1.ClusterPool) bool {
	return s.pool != nil && s.pool.ResourceVersion == pool.ResourceVersion
}

func (s *apiServer) createNamespace(name string) bool {
	if n, there := s.namespaces[name]; there {
		return !n.Deleting
	}
	s.putNamespace(poolplan.Namespace{Name: name, UID: s.uid()})
	s.writes++
	return true
}

func (s *apiServer) createCluster(a poolplan.CreateCluster) (created, refused bool) {
	ns, there := s.namespaces[a.Namespace]
	if _, exists := s.clusters[a.Namespace]; exists || !there || ns.Deleting {
		return exists, false
	}
	if s.refuse(a.Namespace) {
		return false, true
	}
	s.used[a.Namespace]++
	s.putCluster(poolplan.Cluster{
		Namespace: a.Namespace, Name: a.Namespace, UID: s.uid(), Created: s.now.Truncate(time.Second), ClusterName: a.ClusterName, Version: a.Version, Power: a.Power,
	})
	s.writes++
	return true, false
}

func (s *apiServer) deleteCluster(a poolplan.DeleteCluster) bool {
	c, there := s.clusters[a.Namespace]
	if !there || c.UID != a.UID || c.Deleting {
		return true
	}
	if c.ResourceVersion != a.ResourceVersion {
		return false
	}
	if c.Protected {
		s.kept = append(s.kept, c.Name)
		return false
	}
	c.Deleting = true
	s.putCluster(c)
	s.writes++
	return true
}

func (s *apiServer) setPower(a poolplan.SetPower) bool {
	c, there := s.clusters[a.Namespace]
	if !there || c.ResourceVersion != a.ResourceVersion {
		return false
	}
	c.Power = a.Power
	s.putCluster(c)
	s.writes++
	return true
}

func (s *apiServer) deleteNamespace(a poolplan.DeleteNamespace) {
	n, there := s.namespaces[a.Name]
	if !there || n.UID != a.UID || n.Deleting {
		return
	}
	n.Deleting = true
	s.putNamespace(n)
	s.writes++
	if c, occupied := s.clusters[a.Name]; occupied && !c.Deleting {
		c.Deleting = true
		s.putCluster(c)
	}
}

func (s *apiServer) setFinalizer(pool *hivev1.ClusterPool, on bool) bool {
	if !s.unchanged(pool) {
		return false
	}
	next := s.pool.DeepCopy()
	next.Finalizers = nil
	if on {
		next.Finalizers = []string{hivev1.FinalizerClusterPool}
	}
	s.writes++
	if !on && !next.DeletionTimestamp.IsZero() {
		s.removePool()
		return true
	}
	s.putPool(next)
	return true
}

// edit changes the pool's spec, as a user does.
func (s *apiServer) edit(options ...testobj.PoolOption) {
	if s.pool == nil {
		return
	}
	next := s.pool.DeepCopy()
	for _, option := range options {
		option(next)
	}
	next.Generation++
	s.putPool(next)
}

// deletePool marks the pool as being deleted.
func (s *apiServer) deletePool() {
	if s.pool == nil || !s.pool.DeletionTimestamp.IsZero() {
		return
	}
	if len(s.pool.Finalizers) == 0 {
		s.removePool()
		return
	}
	next := s.pool.DeepCopy()
	next.DeletionTimestamp = new(metav1.NewTime(s.now))
	s.putPool(next)
}

// sortedKeys makes iteration deterministic.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (s *apiServer) names() []string { return sortedKeys(s.clusters) }

// install lets an installer finish: the cluster is installed and reaches its power state.
func (s *apiServer) install(namespace string) {
	c := s.clusters[namespace]
	c.Installed, c.InstalledAt, c.ObservedPower = true, s.now, c.Power
	s.putCluster(c)
}

// followPower lets the cluster reach the power state that is asked for.
func (s *apiServer) followPower(namespace string) {
	c := s.clusters[namespace]
	c.ObservedPower, c.ResumingSince, c.NotReady = c.Power, time.Time{}, false
	s.putCluster(c)
}

func (s *apiServer) breakInstall(namespace, reason string) {
	c := s.clusters[namespace]
	c.InstallStopped = &poolplan.Failure{Reason: reason, Message: "installation failed"}
	s.putCluster(c)
}

func (s *apiServer) claim(name string) {
	s.putClaim(claim{Claim: poolplan.Claim{Name: name, UID: s.uid(), Created: s.now}})
}

// bind gives a claim a cluster at once, in its two writes.
func (s *apiServer) bind(name, namespace string) {
	c := s.claims[name]
	c.Namespace = namespace
	s.putClaim(c)
	s.record(c, namespace)
}

func (s *apiServer) record(c claim, namespace string) {
	cd := s.clusters[namespace]
	cd.ClaimName, cd.ClaimUID, cd.Power = c.Name, c.UID, hivev1.PowerStateRunning
	s.putCluster(cd)
}

// release deletes a claim and marks its cluster.
func (s *apiServer) release(name string) {
	c := s.claims[name]
	if cd, there := s.clusters[c.Namespace]; there && cd.ClaimUID == c.UID {
		cd.Marked = true
		s.putCluster(cd)
	}
	s.removeClaim(name)
}

// finishDeletions removes what is being deleted: clusters first, then namespaces.
func (s *apiServer) finishDeletions() {
	for _, name := range s.names() {
		if s.clusters[name].Deleting {
			s.removeCluster(name)
		}
	}
	for _, name := range sortedKeys(s.namespaces) {
		if _, occupied := s.clusters[name]; s.namespaces[name].Deleting && !occupied {
			delete(s.namespaces, name)
			s.log(namespaces, name, nil)
		}
	}
}

func (s *apiServer) String() string {
	out := fmt.Sprintf("pool %+v\n", s.pool)
	for _, name := range s.names() {
		out += fmt.Sprintf("  cluster %+v\n", s.clusters[name])
	}
	for _, name := range sortedKeys(s.claims) {
		out += fmt.Sprintf("  claim %+v\n", s.claims[name])
	}
	for _, name := range sortedKeys(s.namespaces) {
		out += fmt.Sprintf("  namespace %+v\n", s.namespaces[name])
	}
	return out
}
