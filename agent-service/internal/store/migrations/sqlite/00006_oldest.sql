-- Copyright The Muster Authors.
-- SPDX-License-Identifier: Apache-2.0

-- A program that does not know the migration of this version refuses the database. A migration whose result former programs misread updates it to its own
-- version; one that adds a table, an index, or a column with a default leaves it, so that a former version of the service can be started again.
-- +goose Up
CREATE TABLE oldest_reader (version BIGINT NOT NULL);
INSERT INTO oldest_reader (version) VALUES (1);

-- +goose Down
DROP TABLE oldest_reader;
