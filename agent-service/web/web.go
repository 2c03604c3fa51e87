// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package web holds the pages that the service serves.
package web

import "embed"

// Files are the templates of pages.
//
//go:embed *.html
var Files embed.FS
