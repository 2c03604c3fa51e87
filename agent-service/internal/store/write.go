// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

const (
	// attempts is how often a transaction is run when others are in the way.
	attempts = 20
	// foldWindow is how long after an event its repetition is counted with it.
	foldWindow = time.Hour
	// changesInNews is how many changes fit into what PostgreSQL takes in a notification, 8000 bytes: ids are UUIDs.
	changesInNews = 30
)

const (
	channel = "muster_agent_service"
	// eventLock is what a transaction of PostgreSQL holds from its first event until its commit.
	eventLock = 0x6d7573746572
)

// sqlTx implements transaction.Tx.
type sqlTx struct {
	reader
	store   *Store
	changes []domain.Change
	// events are written at the end, where there are many writers.
	events []domain.Event
	after  []func()
}

// AfterCommit implements transaction.Tx.
func (t *sqlTx) AfterCommit(do func()) { t.after = append(t.after, do) }

// Update implements transaction.Store.
func (s *Store) Update(ctx context.Context, do func(context.Context, transaction.Tx) error) (err error) {
	ctx, done := s.call(ctx, "update")
	defer func() { done(err) }()
	for range attempts {
		err = s.once(ctx, do)
		if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil {
			err = ctx.Err() // who asked has gone, and the transaction ended with that
		}
		if !repeatable(err) || ctx.Err() != nil {
			return classify(err)
		}
	}
	return classify(err)
}

func (s *Store) once(ctx context.Context, do func(context.Context, transaction.Tx) error) error {
	if s.listen == nil {
		return s.group.update(ctx, func(ctx context.Context, tx bun.Tx) ([]func(), error) {
			t := &sqlTx{reader: reader{db: tx, prepared: s.writing, tx: tx.Tx, versions: s.group.versions}, store: s}
			err := do(ctx, t)
			return t.after, err
		})
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	t := &sqlTx{reader: reader{db: tx, prepared: s.writing, tx: tx.Tx, lock: "UPDATE"}, store: s}
	if err := t.carryOut(ctx, do); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		s.doubt(err, t.changes)
		return fmt.Errorf("committing a transaction: %w", err)
	}
	for _, do := range t.after {
		do()
	}
	return nil
}

// carryOut does what the transaction is for. One that panics or ends its goroutine is rolled back at once: a context that ends would close the connection with it.
func (t *sqlTx) carryOut(ctx context.Context, do func(context.Context, transaction.Tx) error) error {
	returned := false
	defer func() {
		if !returned {
			_ = t.tx.Rollback() // the panic says more
		}
	}()
	err := do(ctx, t)
	returned = true
	if err != nil {
		return err
	}
	return t.finish(ctx)
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) || away(orNothing(err)) {
		return nil
	}
	return err
}

var errNothing = errors.New("nothing")

func orNothing(err error) error {
	if err == nil {
		return errNothing
	}
	return err
}

// View implements transaction.Store.
func (s *Store) View(ctx context.Context, do func(context.Context, transaction.Reader) error) (err error) {
	ctx, done := s.call(ctx, "view")
	defer func() { done(err) }()
	return classify(do(ctx, &reader{db: s.read, prepared: s.reading}))
}

// Announce implements transaction.Tx.
func (t *sqlTx) Announce(changes ...domain.Change) {
	t.changes = append(t.changes, changes...)
}

// finish writes the events and tells other replicas of the changes, with the commit. One transaction at a time does it, so that a reader of an event has seen
// all with lower positions. All of it is sent at once, so that the others do not wait for long.
func (t *sqlTx) finish(ctx context.Context) error {
	var statements []string
	var values []any
	say := func(statement string, with ...any) {
		statements, values = append(statements, statement), append(values, with...)
	}
	if len(t.events) > 0 {
		say("SELECT pg_advisory_xact_lock(?)", eventLock)
	}
	for _, e := range t.events {
		say(sequences.Replace(upsertEvent), valuesOf(e)...)
		if e.Reported {
			say(trimEvents, trimmed(e)...)
		}
	}
	if len(t.changes) > 0 {
		all, err := t.notifications()
		if err != nil {
			return err
		}
		for _, news := range all {
			say("SELECT pg_notify(?, ?)", channel, string(news))
		}
	}
	if len(statements) == 0 {
		return nil
	}
	if _, err := t.db.NewRaw(strings.Join(statements, "; "), values...).Exec(ctx); err != nil {
		return fmt.Errorf("telling what happened: %w", err)
	}
	return nil
}

// notifications are the changes in as many parts as notifications need.
func (t *sqlTx) notifications() ([][]byte, error) {
	var all [][]byte
	for some := range slices.Chunk(t.changes, changesInNews) {
		news, err := json.Marshal(notification{Origin: t.store.origin, Changes: some})
		if err != nil {
			return nil, fmt.Errorf("encoding changes: %w", err)
		}
		all = append(all, news)
	}
	return all, nil
}

// LockClusters implements transaction.Tx.
func (t *sqlTx) LockClusters(ctx context.Context, ids ...string) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	slices.Sort(ids)
	if t.lock == "" || len(ids) == 0 {
		return nil
	}
	var found []string
	err := t.db.NewSelect().Table("clusters").Column("id").Where("id IN (?)", bun.List(ids)).Order("id").For("UPDATE").Scan(ctx, &found)
	if err != nil {
		return fmt.Errorf("locking clusters: %w", err)
	}
	return nil
}

// over writes a row over the one that was read, or one that must be new.
func (t *sqlTx) over(ctx context.Context, what, text string, values ...any) error {
	n, err := t.prepared.exec(ctx, t.tx, text, values...)
	if err != nil {
		return fmt.Errorf("writing %s: %w", what, err)
	}
	if n != 1 {
		return errStale
	}
	return nil
}

// put inserts a row whose object is new (revision 0), and else writes over the one that was read.
func (t *sqlTx) put(ctx context.Context, row any, known int64, what string) error {
	var result sql.Result
	var err error
	if known == 0 {
		result, err = t.db.NewInsert().Model(row).On("CONFLICT DO NOTHING").Exec(ctx)
	} else {
		result, err = t.db.NewUpdate().Model(row).WherePK().Where("revision = ?", known).Exec(ctx)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", what, err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errStale, err)
	}
	return nil
}

// PutInfraEnv implements transaction.Tx.
func (t *sqlTx) PutInfraEnv(ctx context.Context, e *domain.InfraEnv) error {
	known := e.Revision
	e.Revision++
	doc, err := encode(e)
	if err != nil {
		return err
	}
	t.versions.writeInfraEnv(e.ID, versionOf(e.CreatedAt, e.Revision))
	return t.put(ctx, &infraEnvRow{
		ID: e.ID, Name: e.Name, User: e.User, Organization: e.Organization, KubeNamespace: e.Kube.Namespace, KubeName: e.Kube.Name, ClusterID: e.ClusterID,
		Deleting:  e.Deleting,
		CreatedAt: e.CreatedAt.UTC(), Revision: e.Revision, Doc: doc,
	}, known, "InfraEnv "+e.ID)
}

// PutCluster implements transaction.Tx.
func (t *sqlTx) PutCluster(ctx context.Context, c *domain.Cluster) error {
	known := c.Revision
	c.Revision++
	doc, err := encode(c)
	if err != nil {
		return err
	}
	t.versions.writeCluster(c.ID, versionOf(c.CreatedAt, c.Revision), known == 0)
	if known > 0 {
		return t.over(ctx, "cluster "+c.ID, updateCluster, c.Name, c.User, c.Organization, c.Kube.Namespace, c.Kube.Name, string(c.Status), c.Revision, doc, c.ID, known)
	}
	return t.put(ctx, &clusterRow{
		ID: c.ID, Name: c.Name, User: c.User, Organization: c.Organization, KubeNamespace: c.Kube.Namespace, KubeName: c.Kube.Name, Status: string(c.Status),
		CreatedAt: c.CreatedAt.UTC(), Revision: c.Revision, Doc: doc,
	}, known, "cluster "+c.ID)
}

// PutHost implements transaction.Tx.
func (t *sqlTx) PutHost(ctx context.Context, h *domain.Host) error {
	known := h.Revision
	h.Revision++
	doc, err := encode(h)
	if err != nil {
		return err
	}
	t.versions.writeHost(h, known == 0)
	search, name := sought(h)
	cluster := sql.NullString{String: h.ClusterID, Valid: h.ClusterID != ""}
	if known > 0 {
		return t.over(ctx, "host "+h.String(), updateHost, cluster, h.User, h.Organization, string(h.State), h.Role, search, name, h.Revision, doc, h.InfraEnvID, h.HostID, known)
	}
	return t.over(ctx, "host "+h.String(), insertHost, h.InfraEnvID, h.HostID, cluster, h.User, h.Organization, string(h.State), h.Role, search, name, h.CreatedAt.UTC(), h.Revision, doc)
}

// PutInventory implements transaction.Tx.
func (t *sqlTx) PutInventory(ctx context.Context, key domain.HostKey, inventory []byte) error {
	if _, err := t.prepared.exec(ctx, t.tx, upsertInventory, key.InfraEnvID, key.HostID, string(inventory)); err != nil {
		return fmt.Errorf("writing the inventory of host %s: %w", key, err)
	}
	return nil
}

// DeleteInfraEnv implements transaction.Tx.
func (t *sqlTx) DeleteInfraEnv(ctx context.Context, id string) error {
	if _, err := t.db.NewDelete().Model((*infraEnvRow)(nil)).Where("id = ?", id).Exec(ctx); err != nil {
		return fmt.Errorf("deleting InfraEnv %s: %w", id, err)
	}
	t.versions.deleteInfraEnv(id)
	return nil
}

// DeleteCluster implements transaction.Tx.
func (t *sqlTx) DeleteCluster(ctx context.Context, id string) error {
	if _, err := t.db.NewDelete().Model((*clusterRow)(nil)).Where("id = ?", id).Exec(ctx); err != nil {
		return fmt.Errorf("deleting cluster %s: %w", id, err)
	}
	t.versions.deleteCluster(id)
	return nil
}

// LockHosts implements transaction.Tx.
func (t *sqlTx) LockHosts(ctx context.Context, keys []domain.HostKey) ([]domain.Host, error) {
	var all []domain.Host
	for infraEnv, ids := range byInfraEnv(keys) {
		var rows []hostRow
		query := t.db.NewSelect().Model(&rows).Where("infra_env_id = ? AND host_id IN (?)", infraEnv, bun.List(ids)).Order("infra_env_id", "host_id")
		if t.lock != "" {
			query = query.For(t.lock)
		}
		if err := query.Scan(ctx); err != nil {
			return nil, fmt.Errorf("locking hosts: %w", err)
		}
		found, err := decodeAll(rows, t.host)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// byInfraEnv goes through hosts in the order of their keys, those of each InfraEnv together.
func byInfraEnv(keys []domain.HostKey) iter.Seq2[string, []string] {
	of := map[string][]string{}
	for _, key := range keys {
		of[key.InfraEnvID] = append(of[key.InfraEnvID], key.HostID)
	}
	return func(yield func(string, []string) bool) {
		for _, infraEnv := range slices.Sorted(maps.Keys(of)) {
			slices.Sort(of[infraEnv])
			if !yield(infraEnv, of[infraEnv]) {
				return
			}
		}
	}
}

// DeleteHosts implements transaction.Tx. Inventories go with their hosts. Heartbeats are saved in the order of their keys, and locked in that order here.
func (t *sqlTx) DeleteHosts(ctx context.Context, keys ...domain.HostKey) error {
	t.versions.deleteHosts(keys)
	for infraEnv, ids := range byInfraEnv(keys) {
		beats := t.db.NewSelect().Table("heartbeats").Column("host_id").Where("infra_env_id = ? AND host_id IN (?)", infraEnv, bun.List(ids)).Order("host_id")
		if t.lock != "" {
			beats = beats.For(t.lock)
		}
		if _, err := t.db.NewDelete().Table("heartbeats").Where("infra_env_id = ? AND host_id IN (?)", infraEnv, beats).Exec(ctx); err != nil {
			return fmt.Errorf("deleting heartbeats of hosts: %w", err)
		}
		if _, err := t.db.NewDelete().Model((*hostRow)(nil)).Where("infra_env_id = ? AND host_id IN (?)", infraEnv, bun.List(ids)).Exec(ctx); err != nil {
			return fmt.Errorf("deleting hosts: %w", err)
		}
	}
	return nil
}

// AddEvent implements transaction.Tx. A repetition within the hour is counted with the event that was there.
func (t *sqlTx) AddEvent(ctx context.Context, e domain.Event) error {
	if t.lock != "" {
		t.events = append(t.events, e)
		return nil
	}
	if _, err := t.prepared.exec(ctx, t.tx, upsertEvent, valuesOf(e)...); err != nil {
		return fmt.Errorf("writing event %s: %w", e.Name, err)
	}
	if !e.Reported {
		return nil
	}
	if _, err := t.prepared.exec(ctx, t.tx, trimEvents, trimmed(e)...); err != nil {
		return fmt.Errorf("deleting old events of host %s: %w", e.HostID, err)
	}
	return nil
}

func trimmed(e domain.Event) []any {
	return []any{e.InfraEnvID, e.HostID, e.InfraEnvID, e.HostID, domain.ReportedEvents}
}

// PruneEvents implements transaction.Store. It waits for its turn as those that write events do, and holds nothing else.
func (s *Store) PruneEvents(ctx context.Context, before time.Time, most int) (int, error) {
	var deleted int64
	err := s.Update(ctx, func(ctx context.Context, tx transaction.Tx) error {
		t := tx.(*sqlTx)
		if t.lock != "" {
			if _, err := t.db.NewRaw("SELECT pg_advisory_xact_lock(?)", eventLock).Exec(ctx); err != nil {
				return fmt.Errorf("waiting for the turn to delete events: %w", err)
			}
		}
		var err error
		if deleted, err = t.prepared.exec(ctx, t.tx, pruneEvents, before.UTC(), most); err != nil {
			return fmt.Errorf("deleting old events: %w", err)
		}
		return nil
	})
	return int(deleted), err
}

func valuesOf(e domain.Event) []any {
	fold, at := foldKey(e), e.At.UTC()
	return []any{
		fold, at.Add(-foldWindow), fold, e.Name, e.InfraEnvID, e.HostID, e.ClusterID, e.Severity, e.Category, e.Message, at, at, e.ForInfraEnv, e.ForCluster, e.RequestID,
		string(e.Props), e.Reported,
	}
}

func foldKey(e domain.Event) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{e.Name, e.InfraEnvID, e.HostID, e.ClusterID, e.Message, fmt.Sprint(e.ForInfraEnv, e.ForCluster), string(e.Props)}, "\x00")))
	return hex.EncodeToString(sum[:16])
}
