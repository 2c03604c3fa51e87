-- Copyright The Muster Authors.
-- SPDX-License-Identifier: Apache-2.0

-- What machines are found by, in lower case: search is for all who see the host, name for those who say how it is used. Rows that a former version writes keep what they had.
-- +goose Up
ALTER TABLE hosts ADD COLUMN search TEXT NOT NULL DEFAULT '';
ALTER TABLE hosts ADD COLUMN name TEXT NOT NULL DEFAULT '';
UPDATE hosts SET name = lower(coalesce(json_extract(doc, '$.RequestedHostname'), '')), search = lower(host_id || ' ' || coalesce(json_extract(doc, '$.FreeHostname'), '') || ' ' || coalesce(json_extract(doc, '$.Summary.hostname'), '') || ' ' || coalesce(json_extract(doc, '$.Summary.serialNumber'), '') || ' ' || coalesce(json_extract(doc, '$.Summary.macAddresses'), '') || ' ' || coalesce(json_extract(doc, '$.Summary.addresses'), ''));

-- +goose Down
ALTER TABLE hosts DROP COLUMN name;
ALTER TABLE hosts DROP COLUMN search;
