// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentservice is the root of the module of agent-service, at which machines that booted a discovery image register.
// Its programs are in cmd, its packages in internal, and the generated client of REST v2 in client.
package agentservice
