// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func TestTheServiceIsIdleWhenTheLastClaimWasServed(t *testing.T) {
	idle := func(s <-chan struct{}) bool {
		select {
		case <-s:
			return true
		default:
			return false
		}
	}
	a, b := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	s := NewService()
	require.True(t, idle(s.Idle()))
	s.end(a)
	s.begin(a)
	s.begin(b)
	s.begin(a)
	waiting := s.Idle()
	s.end(a)
	require.False(t, idle(waiting))
	s.end(b)
	require.True(t, idle(waiting))
	s.begin(a)
	require.False(t, idle(s.Idle()), "a new claim begins a new wait")
	require.True(t, idle(waiting))
}
