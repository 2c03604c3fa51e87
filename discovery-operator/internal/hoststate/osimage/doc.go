// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package osimage reads what a host says of the system that is deployed on its machine: the image and its checksum, the disk, and the config drive. It writes them in the
// form in which Ironic takes them. The package is pure.
package osimage
