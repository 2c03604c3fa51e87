// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment_test

import "context"

// victimContext is that of a program without end.
func victimContext() context.Context { return context.Background() }
