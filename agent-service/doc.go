// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentservice is the root of the module that will hold the service which discovered hosts register with.
// It holds no code yet.
package agentservice
