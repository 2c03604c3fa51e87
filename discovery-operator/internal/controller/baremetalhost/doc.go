// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baremetalhost reconciles the hosts that discovery made until another operator manages them: it hands them over when
// credentials arrive, removes their nodes when they are deleted, and gives reservations of boot MACs back.
package baremetalhost
