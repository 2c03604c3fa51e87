// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterdeployment reconciles ClusterDeployments of the hosted platform: it gives each its control plane, publishes how to get
// into it, stops and starts it, and removes it. Package hostedplan decides what to do; a Runtime runs the clusters.
package clusterdeployment
