// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds what looks at Muster from outside: user journeys, the rendered manifests of deploy, the demo and the benchmarks. Its packages import
// the API types and nothing else of Muster; operators are binaries to them.
package e2e
