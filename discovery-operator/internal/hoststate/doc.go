// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hoststate is the life of a host as data: for each state and each event there is one answer, the next state and what to
// do. Its tests draw its diagram. The package is pure: it sees values and returns values.
package hoststate
