// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

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

func TestANameThatCannotBeALabelIsRefused(t *testing.T) {
	w := newWorld(t)
	d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: strings.Repeat("n", 64)}}
	d.Spec.ResourceNameTemplate.HardwareDetails = metal3v1.DetailHostname
	err := w.Create(t.Context(), d)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "at most 63 characters")
	d.Name = strings.Repeat("n", 63)
	require.NoError(t, w.Create(t.Context(), d))
}

// TestIllegalKeysOfATemplateAreRefused installs the policy of the deployment. An update that changes no template passes.
func TestIllegalKeysOfATemplateAreRefused(t *testing.T) {
	w := newWorld(t)
	before := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "before"}}
	before.Spec.ResourceNameTemplate.HardwareDetails = metal3v1.DetailHostname
	before.Spec.HostTemplate.Labels = map[string]metal3v1.TemplateValue{"not a key": "v"}
	require.NoError(t, w.Create(t.Context(), before))
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "base", "discovery-operator", "admission.yaml"))
	require.NoError(t, err)
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	first, second, _ := strings.Cut(string(data), "\n---\n")
	require.NoError(t, yaml.UnmarshalStrict([]byte(first), policy))
	require.NoError(t, yaml.UnmarshalStrict([]byte(second), binding))
	// A policy stays in force for a moment after it was deleted; it must not reach other tests.
	binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.ns}},
	}
	require.NoError(t, w.Create(t.Context(), policy))
	require.NoError(t, w.Create(t.Context(), binding))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, w.Delete(ctx, binding))
		assert.NoError(t, w.Delete(ctx, policy))
	})
	try := func(labels, annotations map[string]metal3v1.TemplateValue) error {
		d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "keys"}}
		d.Spec.ResourceNameTemplate.HardwareDetails = metal3v1.DetailHostname
		d.Spec.HostTemplate = metal3v1.HostTemplate{Labels: labels, Annotations: annotations}
		return w.Create(t.Context(), d, client.DryRunAll)
	}
	type values = map[string]metal3v1.TemplateValue
	w.eventually("the policy is in force", func() bool { return try(values{"not a key": "v"}, nil) != nil })
	for _, key := range []string{"", "-a", "a/b/c", "A.b/c", strings.Repeat("k", 64), "/a"} {
		require.ErrorContains(t, try(values{key: "v"}, nil), "is no legal key of a label", key)
		require.ErrorContains(t, try(nil, values{key: "v"}), "is no legal key of an annotation", key)
	}
	require.NoError(t, try(values{"rack": "v", "example.com/Vendor_1": "${bootMAC}"}, values{"example.com/a.b": "v"}))
	w.patch(before, `{"spec":{"paused":true}}`)
}

func TestATemplateWithAnIllegalKeyIsStalled(t *testing.T) {
	w := newWorld(t)
	w.operate()
	d := w.discover("keys", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.HostTemplate.Labels = map[string]metal3v1.TemplateValue{"not a key": "v"}
	})
	w.status(d, "the key is named", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, metal3v1.ConditionStalled)
		return c != nil && c.Reason == metal3v1.ReasonTemplateInvalid && strings.Contains(c.Message, `"not a key" is no legal key`)
	})
}

func TestASelectorThatFailsNamesTheFirstMachine(t *testing.T) {
	w := newWorld(t)
	uuid := w.enrol(1)
	w.enrol(2)
	w.operate()
	d := w.discover("fails", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Selector = "hardware.rack == 'r1'" })
	w.status(d, "the condition names the machine", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, metal3v1.ConditionSelectorEvaluated)
		return c != nil && c.Reason == metal3v1.ReasonEvaluationFailure && strings.Contains(c.Message, "2 machines") && strings.Contains(c.Message, uuid)
	})
}
