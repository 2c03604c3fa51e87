// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client calls the REST interface of agent-service. The types of its JSON are in package api.
package client
