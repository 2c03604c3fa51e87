// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baremetalhostdiscovery makes BareMetalHosts of the machines that Ironic knows and no user has registered.
package baremetalhostdiscovery
