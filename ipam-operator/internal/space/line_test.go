// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
)

func TestLine(t *testing.T) {
	l := NewLine()
	waiter := func(n string, age time.Duration) Waiter {
		return Waiter{Created: now.Add(-age), Name: name(n), UID: types.UID(n)}
	}
	young, old, oldest := waiter("young", time.Minute), waiter("old", time.Hour), waiter("oldest", 2*time.Hour)
	for _, w := range []Waiter{young, oldest, old, old} {
		l.Enter(name("p"), w)
	}
	l.Enter(name("other"), waiter("elsewhere", 3*time.Hour))
	assert.Equal(t, []int{0, 1, 2}, []int{l.Ahead(name("p"), oldest), l.Ahead(name("p"), old), l.Ahead(name("p"), young)})
	assert.Equal(t, 3, l.Ahead(name("p"), waiter("new", 0)))
	pool, ok := l.Leave(old.UID)
	assert.True(t, ok)
	assert.Equal(t, name("p"), pool)
	_, ok = l.Leave(old.UID)
	assert.False(t, ok)
	assert.Equal(t, 1, l.Ahead(name("p"), young))
	l.Enter(name("other"), young)
	assert.Equal(t, 1, l.Ahead(name("p"), waiter("new", 0)), "a claim stands in one queue")
}
