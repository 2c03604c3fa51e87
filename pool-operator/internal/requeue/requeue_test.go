// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package requeue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/pool-operator/internal/requeue"
)

func TestSooner(t *testing.T) {
	for given, c := range map[string]struct{ a, b, want time.Duration }{
		"two delays":    {2, 1, 1},
		"the same":      {1, 1, 1},
		"the one never": {0, 1, 1},
		"both never":    {0, 0, 0},
	} {
		t.Run(given, func(t *testing.T) {
			assert.Equal(t, c.want, requeue.Sooner(c.a, c.b))
			assert.Equal(t, c.want, requeue.Sooner(c.b, c.a))
		})
	}
}
