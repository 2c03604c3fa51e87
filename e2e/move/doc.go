// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package move moves Clusters with their pools, claims and addresses between two API servers, as "clusterctl move" does: by Cluster API's own mover. It is
// a module of its own because the mover is built with older Kubernetes libraries than the operators. It uses their binaries and manifests only.
package move
