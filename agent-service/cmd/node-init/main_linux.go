// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command node-init is the first process of a node image: of its RAM disk, and of the system on its disk.
package main

import "github.com/muster-io/muster/agent-service/internal/nodeinit"

func main() { nodeinit.Run() }
