// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package machinetest

import "syscall"

func ownSession() *syscall.SysProcAttr { return nil }
