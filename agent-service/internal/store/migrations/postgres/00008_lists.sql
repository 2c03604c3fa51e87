-- Copyright The Muster Authors.
-- SPDX-License-Identifier: Apache-2.0

-- Pages of hosts are read in the order of an index, and hosts are counted by state in an index, without the documents of all hosts.
-- +goose Up
CREATE INDEX hosts_created ON hosts (created_at, infra_env_id, host_id);
CREATE INDEX hosts_counted ON hosts (infra_env_id, state, cluster_id, org_id, user_name);

-- +goose Down
DROP INDEX hosts_counted;
DROP INDEX hosts_created;
