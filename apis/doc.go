// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apis is the root of the Go types of every custom resource that Muster's operators read or write.
// It is the only module that the operators share, and holds the wiring that all of them need: docs/architecture.md lists its packages.
package apis
