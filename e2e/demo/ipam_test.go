// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func TestTheTableOfAddressesSaysWhoWaitsAndWhy(t *testing.T) {
	claim := func(name, address, reason string) ipamv1.IPClaim {
		c := ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: "p"}}}
		if address != "" {
			c.Status.Address = &ipamv1.ObjectReference{Name: address}
		}
		if reason != "" {
			c.Status.Conditions = []metav1.Condition{{Type: ipamv1.ReadyCondition, Reason: reason}}
		}
		return c
	}
	lines := addressTable(func(_, text string) string { return text }, []ipamv1.IPClaim{
		claim("a", "p-192-0-2-1", "Allocated"), claim("b", "", "PoolExhausted"), claim("c", "", ""),
	})
	assert.Equal(t, []string{
		"CLAIM  POOL  ADDRESS      STATE",
		"a      p     p-192-0-2-1  Allocated",
		"b      p     -            PoolExhausted",
		"c      p     -            -",
	}, lines)
}

func TestAnErrorSaysWhatClaimsWaitFor(t *testing.T) {
	refused := ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
	refused.Status.Conditions = []metav1.Condition{{Type: ipamv1.ReadyCondition, Message: "192.0.2.1 is taken"}}
	served := ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Name: "served"}}
	served.Status.Address = &ipamv1.ObjectReference{Name: "p-192-0-2-1"}
	unseen := ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Name: "unseen"}}
	assert.Equal(t, "the claim refused has no address: 192.0.2.1 is taken; the claim unseen has no address: ipam-operator has not looked at it",
		waitingFor([]ipamv1.IPClaim{refused, served, unseen}))
	assert.Empty(t, waitingFor([]ipamv1.IPClaim{served}))
}
