// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostedplan decides what to do about one hosted cluster: from its ClusterDeployment and an observation of what runs
// it makes actions, a status and the time to look again. It is pure: no client, context, clock, randomness or logger.
//
// The rules in one place:
//
//   - nothing runs before the finalizer is there, and the finalizer stays until nothing is left;
//   - a cluster is installed once its API answers and its credentials are published; only then does it hibernate;
//   - a cluster that never answered and whose programs die again and again is begun anew, as its data may be half laid;
//   - an installed cluster whose data is not here is never started from nothing;
//   - what fails is tried again with growing pauses, for ever, unless installAttemptsLimit ends an installation;
//   - the status says what was observed, never what was asked for.
package hostedplan
