-- Copyright The Muster Authors.
-- SPDX-License-Identifier: Apache-2.0

-- +goose Up
DROP TABLE heartbeats;
CREATE TABLE heartbeats (
  infra_env_id TEXT NOT NULL,
  host_id TEXT NOT NULL,
  seen_at BIGINT NOT NULL,
  saved BIGINT NOT NULL,
  PRIMARY KEY (infra_env_id, host_id)
);
CREATE INDEX heartbeats_saved ON heartbeats (saved);

-- +goose Down
DROP TABLE heartbeats;
CREATE TABLE heartbeats (
  infra_env_id TEXT NOT NULL,
  host_id TEXT NOT NULL,
  seen_at BIGINT NOT NULL,
  PRIMARY KEY (infra_env_id, host_id)
);
CREATE INDEX heartbeats_seen ON heartbeats (seen_at);
