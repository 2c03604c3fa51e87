// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

const (
	defaultPage = 1000
	largestPage = 5000
)

// reader implements transaction.Reader on a connection or a transaction.
type reader struct {
	db bun.IDB
	// prepared has the statements that are used most, and tx is nil outside of a transaction.
	prepared *prepared
	tx       *sql.Tx
	// memory is nil where there is none to read from.
	memory transaction.Memory
	// versions are nil where other writers may change what is stored.
	versions *versions
	// lock is added to reads of single hosts in a transaction, where the database has row locks.
	lock string
}

// Recall implements transaction.Reader.
func (r *reader) Recall(m transaction.Memory) { r.memory = m }

// one reads the row of a query into row; false where there is none.
func (r reader) one(ctx context.Context, query *bun.SelectQuery) (bool, error) {
	if r.lock != "" {
		query = query.For(r.lock)
	}
	err := query.Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, classify(err)
}

// first scans the row of a prepared statement; false where there is none.
func (r reader) first(ctx context.Context, text string, values []any, into ...any) (bool, error) {
	rows, err := r.prepared.query(ctx, r.tx, text, r.lock, values...)
	if err != nil {
		return false, classify(err)
	}
	defer rows.Close() //nolint:errcheck // what went wrong while reading counts
	found := rows.Next()
	if found {
		err = rows.Scan(into...)
	}
	return found && err == nil, classify(errors.Join(err, rows.Err()))
}

// InfraEnv implements transaction.Reader.
func (r reader) InfraEnv(ctx context.Context, id string) (*domain.InfraEnv, error) {
	row := infraEnvRow{ID: id}
	r.lock = ""
	if r.memory != nil {
		if e := r.memory.KnownInfraEnv(id); e != nil {
			stored, known := r.versions.infraEnv(id)
			if !known {
				found, err := r.first(ctx, compareInfraEnv, []any{id}, &row.CreatedAt, &row.Revision)
				if err != nil || !found {
					return nil, err
				}
				stored = versionOf(row.CreatedAt, row.Revision)
				r.versions.readInfraEnv(id, stored)
			}
			if stored == versionOf(e.CreatedAt, e.Revision) {
				return new(*e), nil
			}
		}
	}
	if found, err := r.first(ctx, selectInfraEnv, []any{id}, &row.Doc, &row.CreatedAt, &row.Revision); err != nil || !found {
		return nil, err
	}
	r.versions.readInfraEnv(id, versionOf(row.CreatedAt, row.Revision))
	return row.decode()
}

// Cluster implements transaction.Reader.
func (r reader) Cluster(ctx context.Context, id string) (*domain.Cluster, error) {
	row := clusterRow{ID: id}
	r.lock = "" // a transaction that changes it has locked it before
	if r.memory != nil {
		if c := r.memory.KnownCluster(id); c != nil {
			stored, known := r.versions.cluster(id)
			if !known {
				found, err := r.first(ctx, compareCluster, []any{id}, &row.CreatedAt, &row.Revision)
				if err != nil || !found {
					return nil, err
				}
				stored = versionOf(row.CreatedAt, row.Revision)
				r.versions.readCluster(id, stored)
			}
			if stored == versionOf(c.CreatedAt, c.Revision) {
				return new(*c), nil
			}
		}
	}
	if found, err := r.first(ctx, selectCluster, []any{id}, &row.Doc, &row.CreatedAt, &row.Revision); err != nil || !found {
		return nil, err
	}
	r.versions.readCluster(id, versionOf(row.CreatedAt, row.Revision))
	return row.decode()
}

// Host implements transaction.Reader.
func (r reader) Host(ctx context.Context, key domain.HostKey) (*domain.Host, error) {
	row, values := hostRow{InfraEnvID: key.InfraEnvID, HostID: key.HostID}, []any{key.InfraEnvID, key.HostID}
	if r.memory != nil {
		if h := r.memory.KnownHost(key); h != nil {
			stored, known := r.versions.host(key)
			if !known {
				found, err := r.first(ctx, compareHost, values, &row.CreatedAt, &row.Revision)
				if err != nil || !found {
					return nil, err
				}
				stored = versionOf(row.CreatedAt, row.Revision)
			}
			if stored == versionOf(h.CreatedAt, h.Revision) {
				r.versions.readHost(key, stored, h.ClusterID)
				return new(*h), nil
			}
		}
	}
	if found, err := r.first(ctx, selectHost, values, &row.Doc, &row.CreatedAt, &row.Revision); err != nil || !found {
		return nil, err
	}
	return r.decoded(row)
}

// decoded is a row's host.
func (r reader) decoded(row hostRow) (*domain.Host, error) {
	h, err := row.decode()
	if err == nil {
		r.versions.readHost(h.HostKey, versionOf(row.CreatedAt, row.Revision), h.ClusterID)
	}
	return h, err
}

// host is a row's host, from memory where that is what is stored.
func (r reader) host(row hostRow) (*domain.Host, error) {
	if r.memory != nil {
		h := r.memory.KnownHost(domain.HostKey{InfraEnvID: row.InfraEnvID, HostID: row.HostID})
		if h != nil && versionOf(h.CreatedAt, h.Revision) == versionOf(row.CreatedAt, row.Revision) {
			return new(*h), nil
		}
	}
	return r.decoded(row)
}

// Inventory implements transaction.Reader.
func (r reader) Inventory(ctx context.Context, key domain.HostKey) ([]byte, error) {
	var body string
	r.lock = ""
	if found, err := r.first(ctx, selectInventory, []any{key.InfraEnvID, key.HostID}, &body); err != nil || !found {
		return nil, err
	}
	return []byte(body), nil
}

// Inventories implements transaction.Reader, with one statement for many hosts.
func (r reader) Inventories(ctx context.Context, keys []domain.HostKey) (map[domain.HostKey][]byte, error) {
	machines := map[string][]string{}
	for _, key := range keys {
		machines[key.InfraEnvID] = append(machines[key.InfraEnvID], key.HostID)
	}
	found := make(map[domain.HostKey][]byte, len(keys))
	for infraEnv, hosts := range machines {
		for some := range slices.Chunk(hosts, defaultPage) {
			var rows []inventoryRow
			if err := r.db.NewSelect().Model(&rows).Where("infra_env_id = ? AND host_id IN (?)", infraEnv, bun.List(some)).Scan(ctx); err != nil {
				return nil, classify(err)
			}
			for _, row := range rows {
				found[domain.HostKey{InfraEnvID: row.InfraEnvID, HostID: row.HostID}] = []byte(row.Body)
			}
		}
	}
	return found, nil
}

// HostsOfCluster implements transaction.Reader. Those that are in memory as they are stored are not read again.
func (r reader) HostsOfCluster(ctx context.Context, id string) ([]*domain.Host, error) {
	if r.memory == nil {
		return r.membersOf(ctx, id)
	}
	members, missing, err := r.revisions(ctx, id)
	if err != nil || len(missing) == 0 {
		return members, err
	}
	if len(missing) > len(members)/2 {
		return r.membersOf(ctx, id)
	}
	found, err := r.HostsByKey(ctx, missing)
	if err != nil {
		return nil, err
	}
	for i := range found {
		at := slices.IndexFunc(members, func(h *domain.Host) bool { return h.HostKey == found[i].HostKey })
		members[at] = &found[i]
	}
	return members, nil
}

func (r reader) membersOf(ctx context.Context, id string) ([]*domain.Host, error) {
	found, err := r.hosts(ctx, selectMembers, id)
	members := make([]*domain.Host, 0, len(found))
	for i := range found {
		members = append(members, &found[i])
	}
	return members, err
}

// HostsByKey implements transaction.Reader.
func (r reader) HostsByKey(ctx context.Context, keys []domain.HostKey) ([]domain.Host, error) {
	var all []domain.Host
	for infraEnv, ids := range byInfraEnv(keys) {
		var rows []hostRow
		if err := r.db.NewSelect().Model(&rows).Where("infra_env_id = ? AND host_id IN (?)", infraEnv, bun.List(ids)).Scan(ctx); err != nil {
			return nil, classify(err)
		}
		found, err := decodeAll(rows, r.decoded)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// revisions are the hosts of a cluster from memory, and the keys of those that are not there as they are stored.
func (r reader) revisions(ctx context.Context, id string) (members []*domain.Host, missing []domain.HostKey, err error) {
	add := func(key domain.HostKey, stored version, known bool) {
		h := r.memory.KnownHost(key)
		if h == nil || !known || stored != versionOf(h.CreatedAt, h.Revision) {
			missing, h = append(missing, key), &domain.Host{HostKey: key}
		}
		members = append(members, h)
	}
	if keys, known := r.versions.membersOf(id); known {
		members = make([]*domain.Host, 0, len(keys))
		for _, key := range keys {
			stored, known := r.versions.host(key)
			add(key, stored, known)
		}
		return members, missing, nil
	}
	var keys []domain.HostKey
	rows, err := r.prepared.query(ctx, r.tx, selectRevisions, "", id)
	if err != nil {
		return nil, nil, classify(err)
	}
	defer rows.Close() //nolint:errcheck // what went wrong while reading counts
	for rows.Next() {
		var row hostRow
		if err := rows.Scan(&row.InfraEnvID, &row.HostID, &row.CreatedAt, &row.Revision); err != nil {
			return nil, nil, classify(err)
		}
		key := domain.HostKey{InfraEnvID: row.InfraEnvID, HostID: row.HostID}
		stored := versionOf(row.CreatedAt, row.Revision)
		r.versions.readHost(key, stored, id)
		keys = append(keys, key)
		add(key, stored, true)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, classify(err)
	}
	r.versions.readMembers(id, keys)
	return members, missing, nil
}

// SameMachine implements transaction.Reader.
func (r reader) SameMachine(ctx context.Context, hostID string, owner domain.Owner, namespace string) ([]domain.Host, error) {
	return r.hosts(ctx, selectMachine, hostID, owner.Organization, owner.Organization, owner.User, namespace)
}

func (r reader) hosts(ctx context.Context, text string, values ...any) ([]domain.Host, error) {
	rows, err := r.prepared.query(ctx, r.tx, text, "", values...)
	if err != nil {
		return nil, classify(err)
	}
	defer rows.Close() //nolint:errcheck // what went wrong while reading counts
	var found []hostRow
	for rows.Next() {
		var row hostRow
		if err := rows.Scan(&row.InfraEnvID, &row.HostID, &row.CreatedAt, &row.Revision, &row.Doc); err != nil {
			return nil, classify(err)
		}
		found = append(found, row)
	}
	if err := rows.Err(); err != nil {
		return nil, classify(err)
	}
	return decodeAll(found, r.host)
}

func decodeAll[R, T any](rows []R, decode func(R) (*T, error)) ([]T, error) {
	objects := make([]T, 0, len(rows))
	for _, row := range rows {
		object, err := decode(row)
		if err != nil {
			return nil, err
		}
		objects = append(objects, *object)
	}
	return objects, nil
}

// owned limits a query to what a principal owns, as Principal.Owns does.
func owned(query *bun.SelectQuery, scope domain.Scope) *bun.SelectQuery {
	switch {
	case scope.Admin:
		return query
	case scope.Organization != "":
		return query.Where("org_id = ?", scope.Organization)
	default:
		return query.Where("org_id = '' AND user_name = ? AND user_name <> ''", scope.User)
	}
}

// reached limits a query of hosts to those that a principal owns, and those in clusters that it owns.
func reached(query *bun.SelectQuery, db bun.IDB, scope domain.Scope) *bun.SelectQuery {
	if scope.Admin {
		return query
	}
	clusters := owned(db.NewSelect().Table("clusters").Column("id"), scope)
	return query.WhereGroup(" AND ", func(query *bun.SelectQuery) *bun.SelectQuery {
		return owned(query, scope).WhereOr("cluster_id IN (?)", clusters)
	})
}

// found limits a query of hosts to those that are known by a text. The name that is asked for in a cluster is known to those who see the cluster, not to the owner of the host.
func found(query *bun.SelectQuery, db bun.IDB, scope domain.Scope, text string) *bun.SelectQuery {
	if text == "" {
		return query
	}
	return query.WhereGroup(" AND ", func(query *bun.SelectQuery) *bun.SelectQuery {
		query = query.Where("search"+like, containing(text))
		if scope.Admin {
			return query.WhereOr("name"+like, containing(text))
		}
		clusters := owned(db.NewSelect().Table("clusters").Column("id"), scope)
		return query.WhereOr("name"+like+" AND (cluster_id IS NULL OR cluster_id IN (?))", containing(text), clusters)
	})
}

// like compares a column with a pattern.
const like = ` LIKE ? ESCAPE '\'`

// likeLower compares the lower case of a column with that of a pattern: which letters have one is for the database to say.
const likeLower = ` LIKE lower(?) ESCAPE '\'`

// containing is a pattern for what contains a text, whatever its case.
func containing(text string) string { return including(strings.ToLower(text)) }

func paged(query *bun.SelectQuery, page domain.Page) *bun.SelectQuery {
	return query.Limit(int64(min(cmp.Or(max(page.Limit, 0), defaultPage), largestPage))).Offset(int64(max(page.Offset, 0)))
}

func equal(query *bun.SelectQuery, column, value string) *bun.SelectQuery {
	if value == "" {
		return query
	}
	return query.Where("? = ?", bun.Ident(column), value)
}

func within[S ~string](query *bun.SelectQuery, column string, values []S) *bun.SelectQuery {
	if len(values) == 0 {
		return query
	}
	return query.Where("? IN (?)", bun.Ident(column), bun.List(values))
}

func ofKube(query *bun.SelectQuery, ref *domain.KubeRef) *bun.SelectQuery {
	if ref == nil {
		return query
	}
	return query.Where("kube_namespace = ? AND kube_name = ?", ref.Namespace, ref.Name)
}

// InfraEnvs implements transaction.Reader.
func (r reader) InfraEnvs(ctx context.Context, scope domain.Scope, f domain.InfraEnvFilter) (domain.List[domain.InfraEnv], error) {
	var rows []infraEnvRow
	query := equal(equal(ofKube(owned(r.db.NewSelect().Model(&rows), scope), f.Kube), "cluster_id", f.ClusterID), "user_name", f.Owner)
	if f.Deleting {
		query = query.Where("deleting")
	}
	return list(ctx, paged(query.Order("created_at", "id"), f.Page), &rows, infraEnvRow.decode)
}

// Clusters implements transaction.Reader.
func (r reader) Clusters(ctx context.Context, scope domain.Scope, f domain.ClusterFilter) (domain.List[domain.Cluster], error) {
	var rows []clusterRow
	query := equal(ofKube(owned(r.db.NewSelect().Model(&rows), scope), f.Kube), "user_name", f.Owner)
	if f.Search != "" {
		query = query.Where("lower(name)"+likeLower, including(f.Search))
	}
	query = within(query, "status", f.States)
	return list(ctx, paged(query.Order("created_at", "id"), f.Page), &rows, clusterRow.decode)
}

// Hosts implements transaction.Reader.
func (r reader) Hosts(ctx context.Context, scope domain.Scope, f domain.HostFilter) (domain.List[domain.Host], error) {
	if selects(f) {
		all, err := r.labelled(ctx, scope, f)
		return pageOf(all, f.Page), err
	}
	var rows []hostRow
	query := r.matching(r.db.NewSelect().Model(&rows), scope, f)
	return list(ctx, paged(query.Order("created_at", "infra_env_id", "host_id"), f.Page), &rows, r.host)
}

// CountHosts implements transaction.Reader.
func (r reader) CountHosts(ctx context.Context, scope domain.Scope, f domain.HostFilter) (map[lifecycle.State]int, error) {
	if selects(f) {
		all, err := r.labelled(ctx, scope, f)
		counts := map[lifecycle.State]int{}
		for i := range all {
			counts[all[i].State]++
		}
		return counts, err
	}
	var rows []struct {
		State lifecycle.State `bun:"state"`
		Count int             `bun:"count"`
	}
	query := r.matching(r.db.NewSelect().Model((*hostRow)(nil)), scope, f)
	if err := query.Column("state").ColumnExpr("count(*) AS count").Group("state").Scan(ctx, &rows); err != nil {
		return nil, classify(err)
	}
	counts := make(map[lifecycle.State]int, len(rows))
	for _, row := range rows {
		counts[row.State] = row.Count
	}
	return counts, nil
}

// matching limits a query of hosts to a filter, and to what is in the scope.
func (r reader) matching(query *bun.SelectQuery, scope domain.Scope, f domain.HostFilter) *bun.SelectQuery {
	query = reached(query, r.db, scope)
	query = equal(equal(equal(query, "infra_env_id", f.InfraEnvID), "cluster_id", f.ClusterID), "host_id", f.HostID)
	query = within(within(query, "state", f.States), "role", f.Roles)
	if f.Unbound {
		query = query.Where("cluster_id IS NULL")
	}
	return found(query, r.db, scope, f.Search)
}

func list[R, T any](ctx context.Context, query *bun.SelectQuery, rows *[]R, decode func(R) (*T, error)) (domain.List[T], error) {
	total, err := query.ScanAndCount(ctx)
	if err != nil {
		return domain.List[T]{}, classify(err)
	}
	items, err := decodeAll(*rows, decode)
	return domain.List[T]{Items: items, Total: int(total)}, err
}

// Events implements transaction.Reader.
func (r reader) Events(ctx context.Context, f domain.EventFilter) (domain.List[domain.Event], error) {
	var rows []eventRow
	query := r.db.NewSelect().Model(&rows)
	if f.InfraEnvID != "" {
		query = query.Where("infra_env_id = ?", f.InfraEnvID)
	}
	if f.ClusterID != "" {
		query = query.Where("cluster_id = ? AND for_cluster", f.ClusterID)
	} else if f.InfraEnvID != "" {
		query = query.Where("for_infra_env")
	}
	hosts := f.HostIDs
	if f.ClusterLevel && (len(hosts) > 0 || f.DeletedHosts) {
		hosts = append(slices.Clone(hosts), "")
	}
	switch {
	case f.DeletedHosts:
		query = query.WhereGroup(" AND ", func(query *bun.SelectQuery) *bun.SelectQuery {
			query = query.Where("host_id <> '' AND NOT EXISTS (SELECT 1 FROM hosts h WHERE h.infra_env_id = o.infra_env_id AND h.host_id = o.host_id)")
			if len(hosts) > 0 {
				query = query.WhereOr("host_id IN (?)", bun.List(hosts))
			}
			return query
		})
	case len(hosts) > 0:
		query = within(query, "host_id", hosts)
	}
	query = within(within(within(query, "severity", f.Severities), "category", f.Categories), "name", f.Names)
	if f.Message != "" {
		query = query.Where("lower(message)"+likeLower, including(f.Message))
	}
	switch {
	case f.AfterPosition != nil:
		query = query.Where("position > ?", *f.AfterPosition).Order("position")
	case f.Descending:
		query = query.Order("last_at DESC", "id DESC")
	default:
		query = query.Order("last_at", "id")
	}
	return list(ctx, paged(query, f.Page), &rows, func(row eventRow) (*domain.Event, error) { return new(row.event()), nil })
}
