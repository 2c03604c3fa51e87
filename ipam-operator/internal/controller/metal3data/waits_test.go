// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/ipam-operator/internal/dataplan"
)

func TestDataIsFoundByWhatItWaitsFor(t *testing.T) {
	a, b := types.NamespacedName{Namespace: "ns", Name: "t-0"}, types.NamespacedName{Namespace: "ns", Name: "t-1"}
	host := object{dataplan.HostKind, types.NamespacedName{Namespace: "ns", Name: "host"}}
	machine := object{dataplan.MachineKind, host.name}
	w := newWaits()
	w.on(a, host)
	w.on(a, host)
	w.on(b, host)
	w.on(b, machine)
	assert.ElementsMatch(t, []types.NamespacedName{a, b}, w.of(host))
	assert.Equal(t, []types.NamespacedName{b}, w.of(machine), "a kind has names of its own")
	w.drop(b)
	assert.Empty(t, w.of(machine))
	w.drop(a)
	assert.Empty(t, w.data)
	assert.Empty(t, w.objects, "data that waits no more is dropped")
}
