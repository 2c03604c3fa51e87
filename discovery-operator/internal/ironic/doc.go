// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ironic reads and changes nodes in Ironic. It is the real adapter of the ports that packages fleet and
// baremetalhost declare; package demo is the other one.
//
// Two services answer: Ironic itself, and ironic-inspector beside an Ironic before version 24, which keeps the
// inventories there. Replies are bounded in size and time, lists are paged by marker, redirects are not followed, and no
// error carries a credential.
package ironic
