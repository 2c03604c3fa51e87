// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

const (
	// RootLabel is the name of the partition with the root file system.
	RootLabel = "root"
	// dataLabel is that of the partition for data.
	dataLabel = "var"
)
