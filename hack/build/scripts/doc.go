// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scripts tests the scripts in hack, which it runs as a user does.
package scripts
