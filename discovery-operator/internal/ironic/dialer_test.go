// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

func TestClientsOfEndpointsThatNoResourceNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(func() (Config, error) { return Config{Endpoint: "http://192.0.2.1"}, nil }, nil, nil)
		own, err := d.Client(t.Context(), "ns", nil)
		require.NoError(t, err)
		for i := range 100 {
			_, err := d.Client(t.Context(), "ns", &metal3v1.IronicReference{Endpoint: fmt.Sprintf("http://192.0.2.2/%d", i)})
			require.NoError(t, err)
		}
		for range 3 {
			<-time.After(unusedTime / 2) // of the bubble
			again, err := d.Client(t.Context(), "ns", nil)
			require.NoError(t, err)
			assert.Same(t, own, again)
		}
		assert.Len(t, d.clients, 1)
	})
}
