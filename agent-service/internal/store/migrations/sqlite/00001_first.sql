-- Copyright The Muster Authors.
-- SPDX-License-Identifier: Apache-2.0

-- +goose Up
CREATE TABLE infra_envs (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  user_name TEXT NOT NULL,
  org_id TEXT NOT NULL,
  kube_namespace TEXT NOT NULL,
  kube_name TEXT NOT NULL,
  cluster_id TEXT,
  created_at TIMESTAMP NOT NULL,
  revision INTEGER NOT NULL,
  doc TEXT NOT NULL
);
CREATE INDEX infra_envs_owner ON infra_envs (org_id, user_name);
CREATE INDEX infra_envs_kube ON infra_envs (kube_namespace, kube_name);

CREATE TABLE clusters (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  user_name TEXT NOT NULL,
  org_id TEXT NOT NULL,
  kube_namespace TEXT NOT NULL,
  kube_name TEXT NOT NULL,
  status TEXT NOT NULL,
  created_at TIMESTAMP NOT NULL,
  revision INTEGER NOT NULL,
  doc TEXT NOT NULL
);
CREATE INDEX clusters_owner ON clusters (org_id, user_name);
CREATE INDEX clusters_kube ON clusters (kube_namespace, kube_name);

CREATE TABLE hosts (
  infra_env_id TEXT NOT NULL REFERENCES infra_envs (id),
  host_id TEXT NOT NULL,
  cluster_id TEXT REFERENCES clusters (id),
  user_name TEXT NOT NULL,
  org_id TEXT NOT NULL,
  state TEXT NOT NULL,
  role TEXT NOT NULL,
  created_at TIMESTAMP NOT NULL,
  revision INTEGER NOT NULL,
  doc TEXT NOT NULL,
  PRIMARY KEY (infra_env_id, host_id)
);
CREATE INDEX hosts_cluster ON hosts (cluster_id);
CREATE INDEX hosts_machine ON hosts (host_id);

CREATE TABLE inventories (
  infra_env_id TEXT NOT NULL,
  host_id TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (infra_env_id, host_id),
  FOREIGN KEY (infra_env_id, host_id) REFERENCES hosts (infra_env_id, host_id) ON DELETE CASCADE
);

CREATE TABLE heartbeats (
  infra_env_id TEXT NOT NULL,
  host_id TEXT NOT NULL,
  seen_at INTEGER NOT NULL,
  PRIMARY KEY (infra_env_id, host_id)
);
CREATE INDEX heartbeats_seen ON heartbeats (seen_at);

CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  position INTEGER NOT NULL,
  fold TEXT NOT NULL,
  name TEXT NOT NULL,
  infra_env_id TEXT NOT NULL,
  host_id TEXT NOT NULL,
  cluster_id TEXT NOT NULL,
  severity TEXT NOT NULL,
  category TEXT NOT NULL,
  message TEXT NOT NULL,
  at TIMESTAMP NOT NULL,
  last_at TIMESTAMP NOT NULL,
  count INTEGER NOT NULL,
  for_infra_env BOOLEAN NOT NULL,
  for_cluster BOOLEAN NOT NULL,
  request_id TEXT NOT NULL,
  props TEXT NOT NULL
);
CREATE INDEX events_fold ON events (fold, id);
CREATE INDEX events_infra_env ON events (infra_env_id, position);
CREATE INDEX events_cluster ON events (cluster_id, position);
CREATE INDEX events_host ON events (host_id, position);
CREATE INDEX events_position ON events (position);

-- +goose Down
DROP TABLE events;
DROP TABLE heartbeats;
DROP TABLE inventories;
DROP TABLE hosts;
DROP TABLE clusters;
DROP TABLE infra_envs;
