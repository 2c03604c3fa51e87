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
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// TestTheAPIServerRefusesWhatCannotWork creates resources that the schema refuses, each with a sentence that says what to write.
func TestTheAPIServerRefusesWhatCannotWork(t *testing.T) {
	w := newTestEnv(t)
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
	w := newTestEnv(t)
	d := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: strings.Repeat("n", 64)}}
	d.Spec.ResourceNameTemplate.HardwareDetails = metal3v1.DetailHostname
	err := w.Create(t.Context(), d)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "at most 63 characters")
	d.Name = strings.Repeat("n", 63)
	require.NoError(t, w.Create(t.Context(), d))
}

// installs puts a policy of the deployment in force, in the namespace of this test alone: a policy stays in force for a moment after it was deleted.
func (w *testEnv) installs(name string) {
	w.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "base", "discovery-operator", "admission.yaml"))
	require.NoError(w, err)
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	found := 0
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		if !strings.Contains(document, "\n  name: "+name+"\n") {
			continue
		}
		found++
		var into client.Object = policy
		if strings.Contains(document, "kind: ValidatingAdmissionPolicyBinding\n") {
			into = binding
		}
		require.NoError(w, yaml.UnmarshalStrict([]byte(document), into))
	}
	require.Equal(w, 2, found, "the policy and its binding")
	binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.ns}},
	}
	require.NoError(w, w.Create(w.Context(), policy))
	require.NoError(w, w.Create(w.Context(), binding))
	w.Cleanup(func() {
		ctx := context.WithoutCancel(w.Context())
		assert.NoError(w, w.Delete(ctx, binding))
		assert.NoError(w, w.Delete(ctx, policy))
	})
}

// TestIllegalKeysOfATemplateAreRefused installs the policy of the deployment. An update that changes no template passes.
func TestIllegalKeysOfATemplateAreRefused(t *testing.T) {
	w := newTestEnv(t)
	before := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "before"}}
	before.Spec.ResourceNameTemplate.HardwareDetails = metal3v1.DetailHostname
	before.Spec.HostTemplate.Labels = map[string]metal3v1.TemplateValue{"not a key": "v"}
	require.NoError(t, w.Create(t.Context(), before))
	w.installs("baremetalhostdiscovery-keys.muster.io")
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
	w := newTestEnv(t)
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
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.enrol(2)
	w.operate()
	d := w.discover("fails", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Selector = "hardware.rack == 'r1'" })
	w.status(d, "the condition names the machine", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, metal3v1.ConditionSelectorEvaluated)
		return c != nil && c.Reason == metal3v1.ReasonEvaluationFailure && strings.Contains(c.Message, "2 machines") && strings.Contains(c.Message, uuid)
	})
}

// TestAnImageThatCannotBeDeployedIsRefused compares the policy with the rule of the operator, which is for images that were written without the policy.
func TestAnImageThatCannotBeDeployedIsRefused(t *testing.T) {
	w := newTestEnv(t)
	before := w.register("before", 1, func(h *metal3v1.BareMetalHost) { h.Spec.Image = &metal3v1.Image{URL: "no URL"} })
	w.installs("baremetalhost-image.muster.io")
	const (
		noURL      = "spec.image.url is not the URL of an image"
		noChecksum = "set spec.image.checksum"
		md5        = "of type md5: write 32 hexadecimal digits"
	)
	cases := map[string]struct {
		image metal3v1.Image
		wrong string
	}{
		"no URL":                      {metal3v1.Image{URL: "system.qcow2", Checksum: sum, ChecksumType: "sha256"}, noURL},
		"a URL without host":          {metal3v1.Image{URL: "https:///system.qcow2", Checksum: sum, ChecksumType: "sha256"}, noURL},
		"an unknown scheme":           {metal3v1.Image{URL: "ftp://me:hush@images/system", Checksum: sum, ChecksumType: "sha256"}, noURL},
		"a URL that is cut":           {metal3v1.Image{URL: "http://images:port/%zz", Checksum: sum, ChecksumType: "sha256"}, noURL},
		"no checksum":                 {metal3v1.Image{URL: "http://images/a"}, noChecksum},
		"a word as checksum":          {metal3v1.Image{URL: "http://images/a", Checksum: "wrong"}, md5},
		"a checksum of another type":  {metal3v1.Image{URL: "http://images/a", Checksum: sum}, md5},
		"a checksum that is cut":      {metal3v1.Image{URL: "http://images/a", Checksum: sum[1:], ChecksumType: "sha256"}, "of type sha256: write 64"},
		"too long for any":            {metal3v1.Image{URL: "http://images/a", Checksum: sum + "0", ChecksumType: "auto"}, "write 32, 64 or 128"},
		"where a checksum cannot be":  {metal3v1.Image{URL: "http://images/a", Checksum: "ftp://images/sum"}, md5},
		"a checksum":                  {metal3v1.Image{URL: "http://me:hush@images:8080/a?b=c", Checksum: sum, ChecksumType: "sha256", DiskFormat: new("raw")}, ""},
		"MD5 without type":            {metal3v1.Image{URL: "https://images/a", Checksum: strings.ToUpper(sum[:32])}, ""},
		"a type that Ironic finds":    {metal3v1.Image{URL: "https://images/a", Checksum: sum + sum, ChecksumType: "auto"}, ""},
		"a file with checksums":       {metal3v1.Image{URL: "file:///images/a", Checksum: "https://images/a.sha256sum", ChecksumType: "sha256"}, ""},
		"a live ISO has no checksum":  {metal3v1.Image{URL: "https://[2001:db8::1]/a.iso", DiskFormat: new("live-iso")}, ""},
		"nor has an image by its tag": {metal3v1.Image{URL: "oci://registry:5000/images/a:v1"}, ""},
	}
	try := func(image metal3v1.Image) error {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "tried"}}
		h.Spec = metal3v1.BareMetalHostSpec{AutomatedCleaningMode: "metadata", Image: &image}
		return w.Create(t.Context(), h, client.DryRunAll)
	}
	w.eventually("the policy is in force", func() bool { return try(cases["no URL"].image) != nil })
	for name, c := range cases {
		_, rule := hoststate.DeploymentOf(&metal3v1.BareMetalHost{Spec: metal3v1.BareMetalHostSpec{Image: &c.image}})
		policy := try(c.image)
		if c.wrong == "" {
			require.NoError(t, policy, name)
			require.NoError(t, rule, name)
			continue
		}
		require.True(t, apierrors.IsInvalid(policy), "%s: %v", name, policy)
		require.ErrorContains(t, policy, c.wrong, name)
		require.ErrorContains(t, rule, c.wrong, name)
		assert.Contains(t, policy.Error(), rule.Error(), name)
		assert.NotContains(t, policy.Error(), "hush", name)
	}
	require.ErrorContains(t, try(metal3v1.Image{URL: "http://images/a", Checksum: sum, ChecksumType: "sha256", DiskFormat: new("tar")}),
		`supported values: "raw", "qcow2"`, "formats are the schema's")
	require.NoError(t, try(metal3v1.Image{}), "no image")
	w.patch(before, `{"spec":{"online":false}}`)
}
