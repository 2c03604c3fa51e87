// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/coalesce"
)

// shared are the answers that pages of the same person share which ask at the same time: a change makes all pages that are open read themselves again. An answer is never
// older than its question. Callers must not change what they get.
type shared struct {
	identities coalesce.Group[string, api.Identity]
	machines   coalesce.Group[machinesKey, *machineList]
}

// machinesKey is what a page of the list of machines depends on. URL is its address.
type machinesKey struct{ token, url string }

// as is the visit for requests in another context, which does not end with its own.
func (v *visit) as(ctx context.Context) *visit {
	own := *v
	own.r = v.r.WithContext(ctx)
	return &own
}
