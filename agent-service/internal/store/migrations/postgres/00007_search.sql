-- Copyright The Muster Authors.
-- SPDX-License-Identifier: Apache-2.0

-- What machines are found by, in lower case: search is for all who see the host, name for those who say how it is used. Rows that a former version writes keep what they had.
-- +goose Up
ALTER TABLE hosts ADD COLUMN search TEXT NOT NULL DEFAULT '';
ALTER TABLE hosts ADD COLUMN name TEXT NOT NULL DEFAULT '';
UPDATE hosts SET name = lower(coalesce(doc::jsonb ->> 'RequestedHostname', '')), search = lower(concat_ws(' ', host_id, doc::jsonb ->> 'FreeHostname', doc::jsonb #>> '{Summary,hostname}', doc::jsonb #>> '{Summary,serialNumber}', doc::jsonb #>> '{Summary,macAddresses}', doc::jsonb #>> '{Summary,addresses}'));

-- +goose Down
ALTER TABLE hosts DROP COLUMN name;
ALTER TABLE hosts DROP COLUMN search;
