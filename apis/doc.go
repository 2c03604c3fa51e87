// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apis is the root of the Go types of every custom resource that Muster's operators read or write.
// It is the only module that the operators share.
package apis
