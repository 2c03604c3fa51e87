// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// censusPage is how many addresses are read at a time.
const censusPage = 500

// Census reads all objects of a kind in a namespace from the API server. Those who ask at the same time share an answer, if the reading began after they asked. The zero value is ready to
// use.
type Census[T any] struct {
	asked   atomic.Uint64
	waiting atomic.Int64

	mu        sync.Mutex
	begun     uint64
	namespace string
	all       []T
}

// Of returns the objects of a namespace. They are shared and must not be changed. Each page is read by what page returns: the objects, and where the next one begins.
func (c *Census[T]) Of(ctx context.Context, namespace string, page func(ctx context.Context, from ...client.ListOption) (items []T, next string, err error)) ([]T, error) {
	ticket := c.asked.Add(1)
	c.waiting.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if c.waiting.Add(-1) == 0 {
			c.begun, c.all = 0, nil // no pass needs it any more
		}
	}()
	if c.namespace == namespace && c.begun >= ticket {
		return c.all, nil
	}
	begun := c.asked.Load()
	var all []T
	for token := ""; ; {
		items, next, err := page(ctx, client.InNamespace(namespace), client.Limit(censusPage), client.Continue(token))
		if err != nil {
			return nil, fmt.Errorf("listing the addresses of namespace %s: %w", namespace, err)
		}
		all = append(all, items...)
		if token = next; token == "" {
			break
		}
	}
	c.begun, c.namespace, c.all = begun, namespace, all
	return all, nil
}
