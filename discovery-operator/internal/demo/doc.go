// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo is a rack of machines in memory. It behaves as Ironic does, as far as discovery and hand-over look, and is the
// provisioner that the operator starts with when no Ironic is configured.
package demo
