// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/pki"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/discovery-operator/internal/admission"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// checked makes the API server ask the check of this test, as the deployment does.
func checked(w *testEnv, config admissionregistrationv1.WebhookClientConfig) {
	w.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "components", "discovery-admission", "webhook.yaml"))
	require.NoError(w, err)
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(w, yaml.UnmarshalStrict(data, hook))
	hook.Webhooks[0].ClientConfig = config
	hook.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.ns}}
	if config.CABundle != nil { // the operator would take one of the usual name over
		hook.Name = w.system
	}
	require.NoError(w, w.Create(w.Context(), hook))
	w.Cleanup(func() { _ = w.Delete(context.Background(), hook) })
}

// refusesTwins creates hosts until the check answers, and checks what it says.
func refusesTwins(w *testEnv) {
	w.Helper()
	host := func(name, mac string) *metal3v1.BareMetalHost {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		h.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: mac, AutomatedCleaningMode: "metadata"}
		return h
	}
	require.NoError(w, w.Create(w.Context(), host("first", demo.MAC(1, 0))))
	var err error
	w.eventually("the second is refused", func() bool {
		err = w.Create(w.Context(), host("second", strings.ToUpper(demo.MAC(1, 0))))
		if err == nil {
			assert.NoError(w, w.Delete(w.Context(), host("second", "")))
		}
		return err != nil
	})
	assert.True(w, apierrors.IsForbidden(err))
	require.ErrorContains(w, err, w.ns+"/first")
	other := host("other", demo.MAC(2, 0))
	require.NoError(w, w.Create(w.Context(), other))
	w.patch(other, `{"spec":{"online":false}}`)
	require.NoError(w, w.Create(w.Context(), host("without", "")), "hosts without boot MAC do not share one")
}

func TestASecondHostOfABootMACIsRefused(t *testing.T) {
	w := newTestEnv(t)
	dir, ca := certificate(t)
	address := "127.0.0.1:" + porttest.Free(t)
	w.operate(func(o *setup) { o.WebhookBindAddress, o.WebhookCertDir = address, dir })
	checked(w, admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address + admission.Path), CABundle: ca})
	refusesTwins(w)
}

// TestOneRuleForHostsMadeByHand registers hosts beside discovery, without and with its cache, and one whose machine Ironic has discovered.
func TestOneRuleForHostsMadeByHand(t *testing.T) {
	w := newTestEnv(t)
	dir, ca := certificate(t)
	address := "127.0.0.1:" + porttest.Free(t)
	w.enrol(1)
	uuid := w.enrol(2)
	w.operate(func(o *setup) { o.WebhookBindAddress, o.WebhookCertDir = address, dir })
	w.discover("one", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Selector = "hardware.hostname == 'node-00001'" })
	w.host("node-00001")
	checked(w, admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address + admission.Path), CABundle: ca})
	register := func(name, mac, bmc string, o ...client.CreateOption) error {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		h.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: mac, AutomatedCleaningMode: "metadata"}
		if bmc != "" {
			h.Spec.BMC = &metal3v1.BMCDetails{Address: bmc, CredentialsName: "x"}
		}
		return w.Create(t.Context(), h, o...)
	}
	w.eventually("the check answers", func() bool { return register("twin", demo.MAC(1, 0), "", client.DryRunAll) != nil })

	require.ErrorContains(t, register("twin", demo.MAC(1, 1), ""), "/node-00001", "any interface of a discovered host counts")
	require.ErrorContains(t, register("by-hand", "", "ipmi://172.0.0.1"), "/node-00001", "so does the management controller that it reported")
	err := register("by-hand", demo.MAC(2, 0), "redfish://192.0.2.2/redfish/v1/Systems/1")
	require.ErrorContains(t, err, uuid, "Ironic knows the machine, with a driver that reaches no management controller")
	require.ErrorContains(t, err, "let a BareMetalHostDiscovery make its host")
	require.NoError(t, register("dry", "02:00:00:00:00:07", "ipmi://192.0.2.7", client.DryRunAll))
	require.NoError(t, register("first", "02:00:00:00:00:07", "ipmi://192.0.2.7"), "a dry run reserves nothing")
	require.ErrorContains(t, register("second", "02:00:00:00:00:08", "192.0.2.7"), "/first")
	require.NoError(t, register("sled", "02:00:00:00:00:09", "ipmi://192.0.2.7:6230"), "another port is another machine")

	t.Run("two requests at the same moment", func(t *testing.T) {
		const requests = 8
		errs := make(chan error, requests)
		for i := range requests {
			go func() { errs <- register("racing-"+strconv.Itoa(i), "02:00:00:00:00:0a", "") }()
		}
		admitted := 0
		for range requests {
			if err := <-errs; err == nil {
				admitted++
			}
		}
		assert.Equal(t, 1, admitted)
	})
	t.Run("a deleted host can be registered again", func(t *testing.T) {
		require.NoError(t, w.Delete(t.Context(), &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "first"}}))
		require.NoError(t, register("first", "02:00:00:00:00:07", "ipmi://192.0.2.7"))
	})
}

// TestDiscoveryAndUsersDoNotShareAManagementController registers hosts with the management controllers of machines while discovery makes hosts of these.
func TestDiscoveryAndUsersDoNotShareAManagementController(t *testing.T) {
	w := newTestEnv(t)
	dir, ca := certificate(t)
	address := "127.0.0.1:" + porttest.Free(t)
	w.operate(func(o *setup) { o.WebhookBindAddress, o.WebhookCertDir = address, dir })
	checked(w, admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address + admission.Path), CABundle: ca})
	register := func(name, mac, bmc string, o ...client.CreateOption) error {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		h.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: mac, AutomatedCleaningMode: "metadata", BMC: &metal3v1.BMCDetails{Address: bmc, CredentialsName: "x"}}
		return w.Create(t.Context(), h, o...)
	}
	require.NoError(t, register("first", "02:00:00:00:01:00", "ipmi://192.0.2.1"))
	w.eventually("the check answers", func() bool { return register("twin", "02:00:00:00:01:00", "", client.DryRunAll) != nil })
	d := w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.DuplicateChecks.BMCAddress = metal3v1.DuplicateEnforce
		d.Spec.HostTemplate.BMC = &metal3v1.BMCTemplate{Address: "ipmi://proxy.example:${hardware.systemVendor.serialNumber.substring(6)}", CredentialsName: "x"}
	})
	const machines = 12
	admitted := make(chan error, machines)
	for i := range machines {
		go func() {
			_, err := w.rack.Enrol(demo.Machine(1000 + i))
			assert.NoError(t, err)
			admitted <- register("by-hand-"+strconv.Itoa(i), "02:00:00:00:02:"+strconv.Itoa(10+i), "ipmi://proxy.example:"+strconv.Itoa(1000+i))
		}()
	}
	byHand := 0
	for range machines {
		if <-admitted == nil {
			byHand++
		}
	}
	w.status(d, "each machine is a host or refused", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		return int(s.Counts.Hosts+s.Counts.Refused) == machines && int(s.Counts.Refused) == byHand
	})
	users := map[string]string{}
	for _, h := range w.hosts() {
		assert.Empty(t, users[h.Spec.BMC.Address], "%s has the management controller of %s", h.Name, users[h.Spec.BMC.Address])
		users[h.Spec.BMC.Address] = h.Name
	}
	assert.Len(t, users, machines+1)
}

// TestTheUserWhoApprovesAHostIsPublished approves hosts as users who call their clients by the names of others.
func TestTheUserWhoApprovesAHostIsPublished(t *testing.T) {
	w := newTestEnv(t)
	dir, ca := certificate(t)
	address := "127.0.0.1:" + porttest.Free(t)
	w.enrol(1)
	w.enrol(2)
	w.operate(func(o *setup) { o.WebhookBindAddress, o.WebhookCertDir = address, dir })
	w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Approval = metal3v1.ApprovalManual })
	first, second := w.host("node-00001"), w.host("node-00002")
	checked(w, admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address + admission.Path), CABundle: ca})
	twin := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "twin"}}
	twin.Spec.BootMACAddress, twin.Spec.AutomatedCleaningMode = demo.MAC(1, 0), "metadata"
	w.eventually("the check answers", func() bool { return w.Create(t.Context(), twin.DeepCopy(), client.DryRunAll) != nil })

	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "mallory", Groups: []string{"system:masters"}}
	mallory, err := client.New(config, client.Options{Scheme: w.Scheme()})
	require.NoError(t, err)
	as := *w
	as.Client = mallory
	w.patch(second, `{"metadata":{"labels":{"seen":"true"}}}`)
	as.approveAs("jane", first)
	w.hasEvent(first, metal3v1.EventHostApproved, "Approved by user mallory")
	lease, err := w.reservation(demo.MAC(1, 0))
	require.NoError(t, err)
	assert.Equal(t, "mallory", lease.Annotations[metal3v1.ApprovedByAnnotation])
	lease, err = w.reservation(demo.MAC(2, 0))
	require.NoError(t, err)
	assert.Empty(t, lease.Annotations[metal3v1.ApprovedByAnnotation], "another change is no approval")
}

// TestTheCheckKeepsItsOwnCertificate lets two replicas make one certificate and tell the API server of it, and again when a user
// takes it away.
func TestTheCheckKeepsItsOwnCertificate(t *testing.T) {
	w := newTestEnv(t)
	address := "127.0.0.1:" + porttest.Free(t)
	for i, bind := range []string{address, "127.0.0.1:" + porttest.Free(t)} {
		w.operate(func(o *setup) {
			o.WebhookBindAddress, o.WebhookURL = bind, "https://"+address
			o.LeaderElect = i > 0
		})
	}
	checked(w, admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")})
	refusesTwins(w)

	key := types.NamespacedName{Namespace: w.system, Name: admission.ServiceName}
	var before, after corev1.Secret
	require.NoError(t, w.Get(t.Context(), key, &before))
	require.NoError(t, w.Delete(t.Context(), &before))
	var hook admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Name: admission.ConfigurationName}, &hook))
	w.patch(&hook, `{"metadata":{"annotations":{"touched":"true"}}}`)
	w.eventually("there is another certificate, and the API server knows it", func() bool {
		if w.Get(t.Context(), key, &after) != nil || w.Get(t.Context(), client.ObjectKeyFromObject(&hook), &hook) != nil {
			return false
		}
		return bytes.Equal(hook.Webhooks[0].ClientConfig.CABundle, after.Data["ca.crt"])
	})
	assert.NotEqual(t, before.Data["tls.crt"], after.Data["tls.crt"])
}

// certificate makes a certificate for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) (dir string, ca []byte) {
	made, err := pki.NewSelfSigned([]string{"127.0.0.1"}, pki.Period{From: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	ca, key, err := made.Encode()
	require.NoError(t, err)
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), ca, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
	return dir, ca
}
