// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// version identifies one state of a stored object: another object, and the same object after a change, have another one.
type version struct {
	// madeAt is in microseconds, as databases keep it.
	madeAt, revision int64
}

func versionOf(madeAt time.Time, revision int64) version {
	return version{madeAt.UnixMicro(), revision}
}

// storedHost is what is compared of a host.
type storedHost struct {
	version
	clusterID string
}

// versions are those of objects as the only writer of a file left them: what is in memory is compared with them instead of with rows. They are filled as updates read and
// write, and are for updates of one group alone, which follow each other. A nil value, which is for databases with other writers, finds nothing.
type versions struct {
	infraEnvs, clusters map[string]version
	hosts               map[domain.HostKey]storedHost
	// members are the hosts of a cluster in the order of their keys, where all of them are known.
	members map[string][]domain.HostKey
	// written are what the update at hand wrote.
	written writtenObjects
}

type writtenObjects struct {
	infraEnvs, clusters []string
	hosts               []domain.HostKey
	// members are clusters whose hosts are others.
	members []string
}

func newVersions() *versions {
	v := &versions{}
	v.forget()
	return v
}

// forget empties the versions: the transaction of a group ended without a commit, or a row is not as it is known.
func (v *versions) forget() {
	*v = versions{
		infraEnvs: map[string]version{}, clusters: map[string]version{}, hosts: map[domain.HostKey]storedHost{}, members: map[string][]domain.HostKey{},
	}
}

// end is called after each update; one that is undone leaves what it wrote unknown.
func (v *versions) end(undone bool) {
	if undone {
		for _, id := range v.written.infraEnvs {
			delete(v.infraEnvs, id)
		}
		for _, id := range v.written.clusters {
			delete(v.clusters, id)
		}
		for _, key := range v.written.hosts {
			delete(v.hosts, key)
		}
		for _, id := range v.written.members {
			delete(v.members, id)
		}
	}
	v.written = writtenObjects{}
}

func (v *versions) infraEnv(id string) (is version, known bool) {
	if v != nil {
		is, known = v.infraEnvs[id]
	}
	return is, known
}

func (v *versions) cluster(id string) (is version, known bool) {
	if v != nil {
		is, known = v.clusters[id]
	}
	return is, known
}

func (v *versions) host(key domain.HostKey) (is version, known bool) {
	if v != nil {
		var stored storedHost
		stored, known = v.hosts[key]
		is = stored.version
	}
	return is, known
}

// membersOf are the keys of the hosts of a cluster. They are not to be changed, and good until the next write.
func (v *versions) membersOf(id string) (keys []domain.HostKey, known bool) {
	if v != nil {
		keys, known = v.members[id]
	}
	return keys, known
}

// readInfraEnv, readCluster, readHost and readMembers keep what was read.
func (v *versions) readInfraEnv(id string, is version) {
	if v != nil {
		v.infraEnvs[id] = is
	}
}

func (v *versions) readCluster(id string, is version) {
	if v != nil {
		v.clusters[id] = is
	}
}

func (v *versions) readHost(key domain.HostKey, is version, clusterID string) {
	if v != nil {
		v.hosts[key] = storedHost{is, clusterID}
	}
}

func (v *versions) readMembers(id string, keys []domain.HostKey) {
	if v != nil {
		v.members[id] = keys
	}
}

// writeInfraEnv, writeCluster and writeHost keep what was written.
func (v *versions) writeInfraEnv(id string, is version) {
	if v != nil {
		v.written.infraEnvs = append(v.written.infraEnvs, id)
		v.infraEnvs[id] = is
	}
}

func (v *versions) writeCluster(id string, is version, isNew bool) {
	if v == nil {
		return
	}
	v.written.clusters = append(v.written.clusters, id)
	v.clusters[id] = is
	if isNew {
		v.written.members = append(v.written.members, id)
		v.members[id] = nil
	}
}

// writeHost keeps a host that was written over the one that was read, or is new.
func (v *versions) writeHost(h *domain.Host, isNew bool) {
	if v == nil {
		return
	}
	before, known := v.hosts[h.HostKey]
	v.written.hosts = append(v.written.hosts, h.HostKey)
	v.hosts[h.HostKey] = storedHost{versionOf(h.CreatedAt, h.Revision), h.ClusterID}
	switch {
	case !known && !isNew:
		clear(v.members) // it may have been in any cluster
	case known && before.clusterID == h.ClusterID:
		return
	case known:
		v.leave(before.clusterID, h.HostKey)
	}
	v.enter(h.ClusterID, h.HostKey)
}

func (v *versions) enter(clusterID string, key domain.HostKey) {
	members, known := v.members[clusterID]
	v.written.members = append(v.written.members, clusterID)
	if at, there := slices.BinarySearchFunc(members, key, compareKeys); known && !there {
		v.members[clusterID] = slices.Insert(members, at, key)
	}
}

func (v *versions) leave(clusterID string, key domain.HostKey) {
	members := v.members[clusterID]
	v.written.members = append(v.written.members, clusterID)
	if at, there := slices.BinarySearchFunc(members, key, compareKeys); there {
		v.members[clusterID] = slices.Delete(members, at, at+1)
	}
}

// compareKeys is the order of keys in statements.
func compareKeys(a, b domain.HostKey) int {
	return cmp.Or(strings.Compare(a.InfraEnvID, b.InfraEnvID), strings.Compare(a.HostID, b.HostID))
}

func (v *versions) deleteInfraEnv(id string) {
	if v != nil {
		delete(v.infraEnvs, id)
	}
}

func (v *versions) deleteCluster(id string) {
	if v != nil {
		delete(v.clusters, id)
		delete(v.members, id)
	}
}

func (v *versions) deleteHosts(keys []domain.HostKey) {
	if v == nil {
		return
	}
	for _, key := range keys {
		if before, known := v.hosts[key]; known {
			v.leave(before.clusterID, key)
			delete(v.hosts, key)
		} else {
			clear(v.members)
		}
	}
}
