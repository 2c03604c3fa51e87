// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

type fileRow struct {
	bun.BaseModel `bun:"table:files,alias:o"`

	ClusterID string    `bun:"cluster_id,pk"`
	Name      string    `bun:"name,pk"`
	Size      int64     `bun:"size"`
	UpdatedAt time.Time `bun:"updated_at"`
	Body      []byte    `bun:"body"`
}

// Files implements transaction.Reader.
func (r reader) Files(ctx context.Context, clusterID string) ([]domain.FileInfo, error) {
	var rows []fileRow
	if err := r.db.NewSelect().Model(&rows).ExcludeColumn("body").Where("cluster_id = ?", clusterID).Order("name").Scan(ctx); err != nil {
		return nil, classify(err)
	}
	files := make([]domain.FileInfo, 0, len(rows))
	for _, row := range rows {
		files = append(files, domain.FileInfo{Name: row.Name, Size: row.Size, UpdatedAt: row.UpdatedAt})
	}
	return files, nil
}

// File implements transaction.Reader.
func (r reader) File(ctx context.Context, clusterID, name string) ([]byte, error) {
	var row fileRow
	r.lock = ""
	found, err := r.one(ctx, r.db.NewSelect().Model(&row).Where("cluster_id = ? AND name = ?", clusterID, name))
	if err != nil || !found {
		return nil, err
	}
	return row.Body, nil
}

// PutFile implements transaction.Tx. The body is a value of the statement: as a part of its text it would take twice its size, several times.
func (t *sqlTx) PutFile(ctx context.Context, clusterID, name string, body []byte, at time.Time) error {
	if body == nil {
		body = []byte{}
	}
	if _, err := t.prepared.exec(ctx, t.tx, upsertFile, clusterID, name, int64(len(body)), at.UTC(), body); err != nil {
		return fmt.Errorf("writing file %s of cluster %s: %w", name, clusterID, err)
	}
	return nil
}

// DeleteFile implements transaction.Tx.
func (t *sqlTx) DeleteFile(ctx context.Context, clusterID, name string) error {
	if _, err := t.db.NewDelete().Model((*fileRow)(nil)).Where("cluster_id = ? AND name = ?", clusterID, name).Exec(ctx); err != nil {
		return fmt.Errorf("deleting file %s of cluster %s: %w", name, clusterID, err)
	}
	return nil
}
