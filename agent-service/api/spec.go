// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the REST interface of agent-service: its description, the Go types of its JSON, and the server that is generated from it.
package api

import _ "embed"

// Base is the path below which all operations are.
const Base = "/api/assisted-install/v2"

//go:embed openapi.yaml
var spec []byte

// Spec is the OpenAPI 3 description, in YAML.
func Spec() []byte { return spec }
