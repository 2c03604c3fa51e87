-- Copyright The Muster Authors.
-- SPDX-License-Identifier: Apache-2.0

-- +goose Up
ALTER TABLE infra_envs ADD COLUMN deleting BOOLEAN NOT NULL DEFAULT FALSE;

-- +goose Down
ALTER TABLE infra_envs DROP COLUMN deleting;
