// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package servicewatch_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
)

type service struct{ feed.Feed }

func TestSomeRequestsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		queue := priorityqueue.New[string]("servicewatch")
		defer queue.ShutDown()
		var s service
		source := servicewatch.Source[string]{Service: &s, Concerns: func(_ context.Context, c domain.Change) []string { return []string{c.ID} }}
		source.First = func(_ context.Context, request string) bool { return request == "new" }
		require.NoError(t, source.Start(ctx, queue))
		synctest.Wait()
		s.Publish(domain.Change{ID: "changed"}, domain.Change{ID: "new"}, domain.Change{ID: "changed too"})
		synctest.Wait()
		var order []string
		for range 3 {
			request, _ := queue.Get()
			order = append(order, request)
		}
		assert.Equal(t, []string{"new", "changed", "changed too"}, order)
	})
}
