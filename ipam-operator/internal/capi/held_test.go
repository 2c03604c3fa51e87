// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestEachThingThatAHoldReadsIsAChange has one case for every field of what a hold reads; the test of app with the same cases shows that each of them wakes.
func TestEachThingThatAHoldReadsIsAChange(t *testing.T) {
	cases := map[string]func(*ipamv1.IPClaim){
		"paused":   func(c *ipamv1.IPClaim) { c.Annotations = map[string]string{ipamv1.PausedAnnotation: ""} },
		"marked":   func(c *ipamv1.IPClaim) { c.Annotations = map[string]string{ipamv1.DeleteForMoveAnnotation: ""} },
		"moves":    func(c *ipamv1.IPClaim) { c.Labels = map[string]string{moveLabel: ""} },
		"cluster":  func(c *ipamv1.IPClaim) { c.Labels = map[string]string{ipamv1.ClusterNameLabel: "c"} },
		"deleting": func(c *ipamv1.IPClaim) { c.DeletionTimestamp = new(metav1.Now()) },
	}
	for field := range reflect.TypeFor[holdInputs]().Fields() {
		change, ok := cases[field.Name]
		if assert.True(t, ok, "no case changes %s", field.Name) {
			before, after := &ipamv1.IPClaim{}, &ipamv1.IPClaim{}
			change(after)
			assert.True(t, HoldChanged(before, after), field.Name)
			assert.True(t, HoldChanged(after, before), field.Name)
		}
	}
	unrelated := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}}
	assert.False(t, HoldChanged(&ipamv1.IPClaim{}, unrelated))
}
