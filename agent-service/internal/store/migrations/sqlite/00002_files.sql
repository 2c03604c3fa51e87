-- Copyright The Muster Authors.
-- SPDX-License-Identifier: Apache-2.0

-- +goose Up
CREATE TABLE files (
  cluster_id TEXT NOT NULL REFERENCES clusters (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  size BIGINT NOT NULL,
  updated_at TIMESTAMP NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (cluster_id, name)
);

-- +goose Down
DROP TABLE files;
