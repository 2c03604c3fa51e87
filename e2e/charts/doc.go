// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package charts tests the Helm charts with Helm's own libraries, which no other module needs.
package charts
