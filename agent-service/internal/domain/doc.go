// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package domain has the objects of the service (InfraEnvs, hosts, clusters and events), what is wrong with settings of users, who may see what, and refusals.
// It is pure.
package domain
