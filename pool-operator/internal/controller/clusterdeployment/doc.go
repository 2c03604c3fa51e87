// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterdeployment looks after ClusterDeployments of the hosted platform: it gives each its control plane, publishes how to get
// into it, stops and starts it, and removes it. What to do is decided in package hostedplan; what runs is behind Runtime.
package clusterdeployment
