// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterclaim gives clusters of pools to claims and takes them back: the effects of package claimplan.
//
// A claim is bound by two writes that each have a resourceVersion as precondition: the claim names its cluster, then the cluster records the claim. Everything else
// follows from that pair and can be done again at any time.
package clusterclaim
