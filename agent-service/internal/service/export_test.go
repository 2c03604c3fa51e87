// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import "context"

// Tick does what Run does once a second.
func Tick(ctx context.Context, s *Service) { s.tick(ctx) }
