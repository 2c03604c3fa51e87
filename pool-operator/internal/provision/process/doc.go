// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process runs hosted clusters as child processes of the operator, each in a directory of its own below one
// root.
//
//	<root>/lock                             held shared by every operator that lives on the root
//	<root>/<namespace>_<name>_<uid>/        one cluster
//	    cluster.json                        identity of the cluster, and of its data
//	    password                            of the administrator
//	    …                                   the data directory of package controlplane
//	<root>/.new-*                           a cluster that is being laid down; never started
//	<root>/.gone-<uid>                      a cluster that is being removed
//
// Directories appear and disappear by rename. So a cluster is either there with identity and password, or it is not, and
// an operator that is killed at any moment leaves nothing that the next one would take for a cluster.
//
// The processes of a cluster die with the operator. An operator that starts ends what is left of those of a killed one,
// finishes the removals that were under way, and starts a cluster when it is asked to: its data, port and keys are as
// they were.
package process
