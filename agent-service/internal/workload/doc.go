// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload lets machines join clusters that take nodes. Such a cluster is known by its Secret of node access, see
// docs/spec/node-access.md: it may have been made by pool-operator or by a user.
//
//   - Joiner makes what one host joins with: a bootstrap token for this host and this binding.
//   - judge is the rule about certificate requests: a token gets a certificate for its own host, and for no other.
//   - Watcher applies the rule in one cluster, makes the tokens of hosts that lost their certificate, and deletes the token of a host whose Node is Ready.
package workload
