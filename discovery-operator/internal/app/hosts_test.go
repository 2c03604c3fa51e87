// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhost"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

const (
	patience = 3 * time.Minute
	beat     = 100 * time.Millisecond
)

// What tests write into hosts.
const (
	redfish   = "redfish://192.0.2.1/redfish/v1/Systems/1"
	again     = `{"metadata":{"annotations":{"inspect.metal3.io":""}}}`
	sum       = "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff"
	image     = `"image":{"url":"http://images/a.qcow2","checksum":"` + sum + `","checksumType":"sha256","format":"qcow2"}`
	withImage = `{"spec":{` + image + `}}`
	noImage   = `{"spec":{"image":null}}`
)

// managing makes an operator own the life of hosts.
func managing(o *setup) { o.ManageHosts = true }

// is waits until a host satisfies the test.
func (w *testEnv) is(h *metal3v1.BareMetalHost, what string, want func() bool) {
	w.Helper()
	ok := waitFor(patience, func() bool { return w.Get(w.Context(), client.ObjectKeyFromObject(h), h) == nil && want() })
	require.True(w, ok, "%s: %+v", what, h.Status)
}

func (w *testEnv) reaches(h *metal3v1.BareMetalHost, state metal3v1.ProvisioningState) {
	w.Helper()
	w.is(h, "the host is "+string(state), func() bool { return h.Status.Provisioning.State == state })
}

// says waits until a condition of a host has a reason.
func (w *testEnv) says(h *metal3v1.BareMetalHost, condition, reason string) *metav1.Condition {
	w.Helper()
	var c *metav1.Condition
	w.is(h, condition+" has reason "+reason, func() bool {
		c = meta.FindStatusCondition(h.Status.Conditions, condition)
		return c != nil && c.Reason == reason
	})
	return c
}

// register makes a host by hand, with the MAC of a machine.
func (w *testEnv) register(name string, machine int, change ...func(*metal3v1.BareMetalHost)) *metal3v1.BareMetalHost {
	w.Helper()
	h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	h.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: strings.ToUpper(demo.MAC(machine, 0)), AutomatedCleaningMode: "metadata"}
	for _, c := range change {
		c(h)
	}
	require.NoError(w, w.Create(w.Context(), h))
	return h
}

// serveImage serves an image by a name until the test ends, and returns its URL.
func serveImage(t *testing.T, name string, content []byte) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.ServeContent(rw, r, name, time.Unix(0, 0), bytes.NewReader(content))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/" + name
}

// configure makes a Secret with a part of the configuration of a system.
func (w *testEnv) configure(name, key, text string) {
	w.Helper()
	secret := &corev1.Secret{StringData: map[string]string{key: text}}
	secret.Namespace, secret.Name = w.ns, name
	require.NoError(w, w.Create(w.Context(), secret))
}

// restarts makes a machine boot the ramdisk as soon as Ironic waits for that.
func (w *testEnv) restarts(uuid string) {
	w.Helper()
	w.eventually("Ironic waits for a restart", func() bool { return w.rack.Restart(uuid) })
}

// tells reports whether the condition Ready contains a text.
func (w *testEnv) tells(h *metal3v1.BareMetalHost, text string) bool {
	for _, c := range h.Status.Conditions {
		if c.Type == metal3v1.ConditionReady && strings.Contains(c.Message, text) {
			return true
		}
	}
	return false
}

// machine waits for the host of a machine of the rack.
func (w *testEnv) machine(i int) *metal3v1.BareMetalHost {
	w.Helper()
	return w.host(fmt.Sprintf("node-%05d", i))
}

// available lets machine 1 report to an operator that manages hosts, and waits until its host is available.
func (w *testEnv) available(change ...func(*setup)) (uuid string, h *metal3v1.BareMetalHost, stop func()) {
	w.Helper()
	uuid = w.enrol(1)
	stop = w.operate(append(change, managing)...)
	w.discover("all")
	h = w.machine(1)
	w.reaches(h, metal3v1.StateAvailable)
	return uuid, h, stop
}

// crashes runs an operator whose changes at the API server and in Ironic are the calls of an injector. What it returns waits for something, and lets another process continue after the crash, once
// between has been called.
func (w *testEnv) crashes(f *faultinject.Injector, between func(), mode ...func(*setup)) (until func(what string, done func() bool)) {
	w.Helper()
	w.wrap = append(w.wrap, func(next http.RoundTripper) http.RoundTripper { return f.Transport(next, faultinject.IsWrite) })
	stop := w.operate(append(mode, func(o *setup) {
		o.through = func(m baremetalhost.Manager) baremetalhost.Manager { return crashing{m, f} }
	})...)
	replaced := false
	return func(what string, done func() bool) {
		w.Helper()
		if !replaced {
			w.eventually(what, func() bool { return f.Crashed() || done() })
			if !f.Crashed() {
				return
			}
			replaced = true
			stop()
			w.wrap = nil
			between()
			w.operate(mode...)
		}
		w.eventually(what, done)
	}
}

// sees reads a host, and reports whether it is in a state.
func (w *testEnv) sees(h *metal3v1.BareMetalHost, s metal3v1.ProvisioningState) bool {
	return w.Get(w.Context(), client.ObjectKeyFromObject(h), h) == nil && h.Status.Provisioning.State == s
}
