// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transaction changes hosts, clusters and InfraEnvs in one transaction of a Store: it reads and locks, plans with package hostplan, writes what changed, and brings
// memory up to date after the commit.
package transaction
