// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"context"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// Store keeps everything. Its errors are refusals (Unavailable while it is away), or unexpected.
type Store interface {
	// Update runs a transaction, again where another one was in the way: do has no effects beside tx. It returns after the commit.
	Update(ctx context.Context, do func(ctx context.Context, tx Tx) error) error
	// View reads.
	View(ctx context.Context, do func(ctx context.Context, tx Reader) error) error
	// SavePolls keeps when hosts polled last, in few statements.
	SavePolls(ctx context.Context, polls []domain.Poll) error
	// PollsSince are those that all replicas saved since another call returned the mark, a few from before it among them. The mark of the first call is 0.
	PollsSince(ctx context.Context, mark int64) (polls []domain.Poll, next int64, err error)
	// PruneEvents deletes events whose last occurrence was before a time, the oldest first and at most so many in one transaction. It returns how many they were.
	PruneEvents(ctx context.Context, before time.Time, most int) (int, error)
	// Listen notifies of changes that other replicas committed until ctx ends. It calls disconnected again and again while it cannot. EverythingChanged says that it can
	// again, and that changes may have been missed.
	Listen(ctx context.Context, notify func([]domain.Change), disconnected func()) error
	// Ping is whether the store can be reached, and written to.
	Ping(ctx context.Context) error
	// Shared is true where other replicas may use the same database.
	Shared() bool
}

// Reader reads. An absent object is nil without an error.
type Reader interface {
	InfraEnvReader
	ClusterReader
	HostReader
	// Recall lets reads of single objects and of hosts answer with copies of what is in memory, where that is still what is stored: of the same object, which was made at
	// the same time, and of the same revision.
	Recall(m Memory)
	// Events are of the InfraEnv or the cluster of the filter, each as its owner may see them; of everything without either.
	Events(ctx context.Context, filter domain.EventFilter) (domain.List[domain.Event], error)
}

// InfraEnvReader reads InfraEnvs.
type InfraEnvReader interface {
	InfraEnv(ctx context.Context, id string) (*domain.InfraEnv, error)
	InfraEnvs(ctx context.Context, scope domain.Scope, filter domain.InfraEnvFilter) (domain.List[domain.InfraEnv], error)
}

// ClusterReader reads clusters and what is kept with them.
type ClusterReader interface {
	Cluster(ctx context.Context, id string) (*domain.Cluster, error)
	Clusters(ctx context.Context, scope domain.Scope, filter domain.ClusterFilter) (domain.List[domain.Cluster], error)
	// Files are those of a cluster, without their content, in the order of their names.
	Files(ctx context.Context, clusterID string) ([]domain.FileInfo, error)
	File(ctx context.Context, clusterID, name string) ([]byte, error)
}

// HostReader reads hosts.
type HostReader interface {
	Host(ctx context.Context, key domain.HostKey) (*domain.Host, error)
	// Inventory is nil before the first report.
	Inventory(ctx context.Context, key domain.HostKey) ([]byte, error)
	// Inventories are those of many hosts; hosts without one are left out.
	Inventories(ctx context.Context, keys []domain.HostKey) (map[domain.HostKey][]byte, error)
	// HostsByKey are those of the given hosts that exist, without an order.
	HostsByKey(ctx context.Context, keys []domain.HostKey) ([]domain.Host, error)
	// HostsOfCluster are in the order of their keys. They may be shared with memory: copy what you change.
	HostsOfCluster(ctx context.Context, id string) ([]*domain.Host, error)
	// SameMachine are the hosts with the id in the InfraEnvs of one owner, for those of custom resources in one namespace, in the order of their keys.
	SameMachine(ctx context.Context, hostID string, owner domain.Owner, namespace string) ([]domain.Host, error)
	Hosts(ctx context.Context, scope domain.Scope, filter domain.HostFilter) (domain.List[domain.Host], error)
	// CountHosts counts the hosts of a filter by state; states without hosts are left out.
	CountHosts(ctx context.Context, scope domain.Scope, filter domain.HostFilter) (map[lifecycle.State]int, error)
}

// Memory is what a service has in memory of the store, nil where it has nothing. Callers must not change the results.
type Memory interface {
	KnownInfraEnv(id string) *domain.InfraEnv
	KnownCluster(id string) *domain.Cluster
	KnownHost(key domain.HostKey) *domain.Host
}

// Tx is a transaction. All transactions take their locks in one order, so that they never wait for each other in a circle:
//
//  1. clusters, by LockClusters, once and before anything else. A cluster, its files, and the hosts that are bound to it are changed only while it is locked, so what is read
//     of them after that stays as it is until the commit.
//  2. hosts, by Host and LockHosts, in the order of their keys. One that turns out to be bound to a cluster that is not locked ends the transaction: it runs again with that cluster locked.
//  3. InfraEnvs, when they are written. Reading locks none of them; one that was written meanwhile makes Update run again.
//  4. events, with the commit.
//
// Other reads lock nothing. Package lockorder checks the order in tests.
type Tx interface {
	Reader
	Writer
	FileWriter
	// LockClusters keeps other transactions from changing these clusters and their hosts; empty ids do not count.
	LockClusters(ctx context.Context, ids ...string) error
	// LockHosts reads many hosts as Host reads one; those that are not there are left out.
	LockHosts(ctx context.Context, keys []domain.HostKey) ([]domain.Host, error)
	// AddEvent keeps of the events that a host reported the last ReportedEvents.
	AddEvent(ctx context.Context, e domain.Event) error
	// Announce tells of changes when the transaction is committed.
	Announce(changes ...domain.Change)
	// AfterCommit calls do once the transaction is committed, before Update returns. Where there is one writer, the calls are in the order of the commits.
	AfterCommit(do func())
}

// Writer writes. Put writes an object whole; revisions grow. Another writer in between makes Update run again.
type Writer interface {
	PutInfraEnv(ctx context.Context, e *domain.InfraEnv) error
	PutCluster(ctx context.Context, c *domain.Cluster) error
	PutHost(ctx context.Context, h *domain.Host) error
	PutInventory(ctx context.Context, key domain.HostKey, inventory []byte) error
	DeleteInfraEnv(ctx context.Context, id string) error
	DeleteCluster(ctx context.Context, id string) error
	// DeleteHosts takes the same few statements for many as for one.
	DeleteHosts(ctx context.Context, keys ...domain.HostKey) error
}

// FileWriter writes what is kept with clusters.
type FileWriter interface {
	PutFile(ctx context.Context, clusterID, name string, body []byte, at time.Time) error
	DeleteFile(ctx context.Context, clusterID, name string) error
}
