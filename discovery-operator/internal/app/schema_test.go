// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// TestTheAPIServerRefusesWhatCannotWork creates resources that the schema refuses, each with a sentence that says what to write.
func TestTheAPIServerRefusesWhatCannotWork(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		change func(*metal3v1.BareMetalHostDiscoverySpec)
		text   string
	}{
		"a bare UUID as name": {func(s *metal3v1.BareMetalHostDiscoverySpec) {
			s.ResourceNameTemplate.HardwareDetails = metal3v1.DetailProvisioningID
		}, "add a prefix or a suffix"},
		"a bare UUID as fallback": {func(s *metal3v1.BareMetalHostDiscoverySpec) {
			s.ResourceNameTemplate.Fallback = []metal3v1.HardwareDetail{metal3v1.DetailProvisioningID}
		}, "add a prefix or a suffix"},
		"no detail":         {func(s *metal3v1.BareMetalHostDiscoverySpec) { s.ResourceNameTemplate.HardwareDetails = "" }, "hardwareDetails"},
		"an unknown detail": {func(s *metal3v1.BareMetalHostDiscoverySpec) { s.ResourceNameTemplate.HardwareDetails = "color" }, "hardwareDetails"},
		"an illegal prefix": {func(s *metal3v1.BareMetalHostDiscoverySpec) { s.ResourceNameTemplate.Prefix = "Rack_" }, "prefix"},
		"too short a time": {func(s *metal3v1.BareMetalHostDiscoverySpec) {
			s.Interval = &metav1.Duration{Duration: time.Millisecond}
		}, "for example 10s"},
		"too short a resync": {func(s *metal3v1.BareMetalHostDiscoverySpec) {
			s.ResyncInterval = &metav1.Duration{Duration: time.Second}
		}, "for example 15m"},
		"credentials in URLs": {func(s *metal3v1.BareMetalHostDiscoverySpec) {
			s.Ironic = &metal3v1.IronicReference{Endpoint: "http://a:b@c/"}
		}, "endpoint"},
		"no Secret": {func(s *metal3v1.BareMetalHostDiscoverySpec) {
			s.Ironic = &metal3v1.IronicReference{Endpoint: "http://c/", Auth: metal3v1.AuthHTTPBasic}
		}, "name a Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "refused"}}
			d.Spec.ResourceNameTemplate.HardwareDetails = metal3v1.DetailHostname
			c.change(&d.Spec)
			err := w.Create(t.Context(), d)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.text)
		})
	}
	d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "taken"}}
	d.Spec.ResourceNameTemplate = metal3v1.ResourceNameTemplate{HardwareDetails: metal3v1.DetailProvisioningID, Prefix: "node-"}
	require.NoError(t, w.Create(t.Context(), d))
	assert.Equal(t, []metal3v1.HardwareDetail{metal3v1.DetailBootMAC}, d.Spec.ResourceNameTemplate.Fallback)
	assert.Equal(t, metal3v1.ApprovalAutomatic, d.Spec.Approval)
	assert.EqualValues(t, 1200, d.Spec.RateLimit.HostsPerMinute)
	assert.Equal(t, 10*time.Second, d.Spec.Interval.Duration)
}
