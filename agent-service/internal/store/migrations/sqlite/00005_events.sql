-- Copyright The Muster Authors.
-- SPDX-License-Identifier: Apache-2.0

-- +goose Up
ALTER TABLE events ADD COLUMN reported BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX events_last_at ON events (last_at);
CREATE INDEX events_reported ON events (infra_env_id, host_id, position) WHERE reported;

-- +goose Down
DROP INDEX events_reported;
DROP INDEX events_last_at;
ALTER TABLE events DROP COLUMN reported;
