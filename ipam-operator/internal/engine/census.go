// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// censusPage is how many addresses are read at a time.
const censusPage = 500

// census reads all addresses of a namespace from the API server. Those who ask at the same time share an answer, if the reading began after they asked.
type census struct {
	asked   atomic.Uint64
	waiting atomic.Int64

	mu        sync.Mutex
	begun     uint64
	namespace string
	all       []ipamv1.IPAddress
}

func (c *census) of(ctx context.Context, live client.Reader, namespace string) ([]ipamv1.IPAddress, error) {
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
	var all []ipamv1.IPAddress
	for token := ""; ; {
		list := &ipamv1.IPAddressList{}
		if err := live.List(ctx, list, client.InNamespace(namespace), client.Limit(censusPage), client.Continue(token)); err != nil {
			return nil, fmt.Errorf("listing the addresses of namespace %s: %w", namespace, err)
		}
		all = append(all, list.Items...)
		if token = list.Continue; token == "" {
			break
		}
	}
	c.begun, c.namespace, c.all = begun, namespace, all
	return all, nil
}
