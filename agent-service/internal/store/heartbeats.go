// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// heartbeatBatch is how many hosts one statement saves.
const heartbeatBatch = 1000

// heartbeats is how a database counts what is saved, and its clock in milliseconds: those of replicas may differ.
type heartbeats struct {
	clock bun.Safe
	// saving is a number that grows, of the statement that saves, and unsaved is not above that of any statement whose rows cannot be read yet.
	saving, unsaved bun.Safe
}

var (
	heartbeatsOfSQLite = heartbeats{
		clock: "CAST(unixepoch('subsec') * 1000 AS INTEGER)", saving: "(SELECT coalesce(max(saved), 0) + 1 FROM heartbeats)", unsaved: "(SELECT max(saved) + 1 FROM heartbeats)",
	}
	heartbeatsOfPostgres = heartbeats{
		clock: "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)", saving: "txid_current()", unsaved: "txid_snapshot_xmin(txid_current_snapshot())",
	}
)

// saveHeartbeats takes a list of [InfraEnv, host, milliseconds since the poll] as one text of JSON: SQLite takes longer to read a row of a statement than to write it.
var saveHeartbeats = fmt.Sprintf("INSERT INTO heartbeats (infra_env_id, host_id, seen_at, saved) SELECT value ->> 0, value ->> 1, %s - (value ->> 2), %s FROM json_each(?) WHERE true "+
	"ON CONFLICT (infra_env_id, host_id) DO UPDATE SET seen_at = excluded.seen_at, saved = excluded.saved", heartbeatsOfSQLite.clock, heartbeatsOfSQLite.saving)

type heartbeatRow struct {
	bun.BaseModel `bun:"table:heartbeats"`

	InfraEnvID string   `bun:"infra_env_id,pk"`
	HostID     string   `bun:"host_id,pk"`
	SeenAt     bun.Safe `bun:"seen_at"`
	Saved      bun.Safe `bun:"saved"`
}

// SavePolls implements transaction.Store.
func (s *Store) SavePolls(ctx context.Context, polls []domain.Poll) (err error) {
	ctx, done := s.call(ctx, "save polls")
	defer func() { done(err) }()
	// In one order, so that two replicas do not wait for each other in a circle.
	slices.SortFunc(polls, func(a, b domain.Poll) int { return strings.Compare(a.String(), b.String()) })
	save := s.saveBatch
	if s.listen == nil {
		save = s.saveFile
	}
	for batch := range slices.Chunk(polls, heartbeatBatch) {
		if err := save(ctx, batch); err != nil {
			return classify(fmt.Errorf("saving heartbeats: %w", err))
		}
	}
	return nil
}

func (s *Store) saveBatch(ctx context.Context, batch []domain.Poll) error {
	rows := make([]heartbeatRow, 0, len(batch))
	for _, one := range batch {
		at := bun.Safe(fmt.Sprintf("%s - %d", s.heartbeats.clock, max(one.Ago, 0).Milliseconds()))
		rows = append(rows, heartbeatRow{InfraEnvID: one.InfraEnvID, HostID: one.HostID, SeenAt: at, Saved: s.heartbeats.saving})
	}
	_, err := s.write.NewInsert().Model(&rows).On("CONFLICT (infra_env_id, host_id) DO UPDATE").Set("seen_at = EXCLUDED.seen_at").Set("saved = EXCLUDED.saved").Exec(ctx)
	return err
}

// saveFile is saveBatch for SQLite.
func (s *Store) saveFile(ctx context.Context, batch []domain.Poll) error {
	rows := make([][3]any, 0, len(batch))
	for _, one := range batch {
		rows = append(rows, [3]any{one.InfraEnvID, one.HostID, max(one.Ago, 0).Milliseconds()})
	}
	text, err := encode(rows)
	if err != nil {
		return err
	}
	_, err = s.writing.exec(ctx, nil, saveHeartbeats, text)
	s.group.checkpoints.wrote(1 + len(batch)/rowsOfPage)
	s.group.checkpoints.begin(ctx)
	return err
}

// PollsSince implements transaction.Store.
func (s *Store) PollsSince(ctx context.Context, mark int64) (polls []domain.Poll, next int64, err error) {
	ctx, done := s.call(ctx, "read polls")
	defer func() { done(err) }()
	var rows []struct {
		InfraEnvID string
		HostID     string
		Saved      int64
		Ago        int64
		Unsaved    int64
	}
	query := s.read.NewSelect().Table("heartbeats").Column("infra_env_id", "host_id", "saved").
		ColumnExpr("? - seen_at AS ago", s.heartbeats.clock).ColumnExpr("? AS unsaved", s.heartbeats.unsaved).Where("saved >= ?", mark)
	if err := query.Scan(ctx, &rows); err != nil {
		return nil, mark, classify(fmt.Errorf("reading heartbeats: %w", err))
	}
	polls = make([]domain.Poll, 0, len(rows))
	for _, row := range rows {
		mark = row.Unsaved
		polls = append(polls, domain.Poll{
			HostKey: domain.HostKey{InfraEnvID: row.InfraEnvID, HostID: row.HostID}, Ago: time.Duration(max(row.Ago, 0)) * time.Millisecond, Saved: row.Saved,
		})
	}
	return polls, mark, nil
}
