// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command live-init is the first process of Muster's own live image.
package main

import "github.com/muster-io/muster/agent-service/internal/liveinit"

func main() { liveinit.Run() }
