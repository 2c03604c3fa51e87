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
		l.Enter(Queue{Pool: name("p")}, w)
	}
	l.Enter(Queue{Pool: name("other")}, waiter("elsewhere", 3*time.Hour))
	assert.Equal(t, []int{0, 1, 2}, []int{l.Ahead(Queue{Pool: name("p")}, oldest), l.Ahead(Queue{Pool: name("p")}, old), l.Ahead(Queue{Pool: name("p")}, young)})
	assert.Equal(t, 3, l.Ahead(Queue{Pool: name("p")}, waiter("new", 0)))
	queue, ok := l.Leave(old.UID)
	assert.True(t, ok)
	assert.Equal(t, Queue{Pool: name("p")}, queue)
	_, ok = l.Leave(old.UID)
	assert.False(t, ok)
	assert.Equal(t, 1, l.Ahead(Queue{Pool: name("p")}, young))
	l.Enter(Queue{Pool: name("other")}, young)
	assert.Equal(t, 1, l.Ahead(Queue{Pool: name("p")}, waiter("new", 0)), "a claim stands in one queue")
}
