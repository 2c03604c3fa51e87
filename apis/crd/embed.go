// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd holds the CustomResourceDefinitions of every kind that Muster serves, as generated from the Go types.
package crd

import "embed"

// FS holds one YAML file per CustomResourceDefinition, named <group>_<plural>.yaml.
//
//go:embed *_*.yaml
var FS embed.FS
