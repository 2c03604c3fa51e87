// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentproto is what the service and agents say to each other about steps: the types of steps, the JSON of their arguments and the JSON of replies. Agents in
// the field know them too, so names and fields stay. It imports nothing but the standard library: the agent's program is made of it.
package agentproto
