// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// gate stands before a real Ironic, over TLS, with a user and a password, and can make it slow or old.
type gate struct {
	*httptest.Server
	slow atomic.Bool
	// newest is the newest minor version that passes; 0 is no limit.
	newest atomic.Int64
}

func newGate(t *testing.T, endpoint string) *gate {
	t.Helper()
	target, err := url.Parse(endpoint)
	require.NoError(t, err)
	target.Path = ""
	g := &gate{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		if newest := g.newest.Load(); newest > 0 {
			r.Header.Set("X-OpenStack-Ironic-API-Maximum-Version", "1."+strconv.FormatInt(newest, 10))
		}
		return nil
	}
	g.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, pass, _ := r.BasicAuth()
		asked, _ := strconv.ParseInt(strings.TrimPrefix(r.Header.Get("X-OpenStack-Ironic-API-Version"), "1."), 10, 64)
		switch newest := g.newest.Load(); {
		case g.slow.Load():
			<-r.Context().Done()
		case user != "admin" || pass != "right":
			w.WriteHeader(http.StatusUnauthorized)
		case newest > 0 && asked > newest:
			w.WriteHeader(http.StatusNotAcceptable)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { g.slow.Store(false); g.CloseClientConnections(); g.Close() })
	return g
}

func (g *gate) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.Certificate().Raw})
}

// TestARealIronicThatIsSlowOrOldIsOneClearCondition puts a real Ironic behind TLS and a password, lets it become slow and old, and back.
// Another namespace gets nothing by naming the endpoint, or the Secret.
func TestARealIronicThatIsSlowOrOldIsOneClearCondition(t *testing.T) {
	w := newTestEnv(t)
	i := ironictest.Start(t, "gate")
	i.Enrol(t, 1, 1)
	front := newGate(t, i.Endpoint)
	reference := func() *metal3v1.IronicReference {
		r := &metal3v1.IronicReference{Endpoint: front.URL, Auth: metal3v1.AuthHTTPBasic, CredentialsName: "ironic"}
		if i.Inspector != "" {
			r.InspectorEndpoint = newGate(t, i.Inspector).URL
		}
		return r
	}()
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-other"}}
	require.NoError(t, w.Create(t.Context(), other))
	w.operate(func(o *setup) {
		o.only, o.IronicNamespaces, o.ironicTimeout = []string{w.ns, other.Name}, []string{everyNamespace}, 10*time.Second
	})

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "ironic"}}
	secret.Data = map[string][]byte{"username": []byte("admin"), "password": []byte("right")}
	require.NoError(t, w.Create(t.Context(), secret))
	d := w.discover("behind-a-gate", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Ironic = reference })

	w.status(d, "a certificate of an unknown CA is refused", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, metal3v1.ConditionEndpointReady)
		return c != nil && c.Reason == metal3v1.ReasonEndpointUnreachable && strings.Contains(c.Message, "certificate")
	})
	secret.Data["ca.crt"] = front.ca() // test servers share one certificate
	require.NoError(t, w.Update(t.Context(), secret))
	w.host("node-00001")
	w.status(d, "it answers", ready(metal3v1.ReasonDiscovering))

	t.Run("slow", func(t *testing.T) {
		front.slow.Store(true)
		w.status(d, "slow", ready(metal3v1.ReasonEndpointTimedOut))
		front.slow.Store(false)
		w.status(d, "fast again", ready(metal3v1.ReasonDiscovering))
	})
	t.Run("too old", func(t *testing.T) {
		front.newest.Store(58)
		w.status(d, "too old", ready(metal3v1.ReasonAPITooOld))
		c := meta.FindStatusCondition(d.Status.Conditions, metal3v1.ConditionReady)
		assert.Contains(t, c.Message, "speaks version 1.58")
		front.newest.Store(0)
		w.status(d, "upgraded", ready(metal3v1.ReasonDiscovering))
	})
	t.Run("another namespace", func(t *testing.T) {
		foreign := func(name, want string, change func(*metal3v1.IronicReference)) {
			r := reference.DeepCopy()
			change(r)
			f := w.discover(name, func(d *metal3v1.BareMetalHostDiscovery) { d.Namespace, d.Spec.Ironic = other.Name, r })
			w.status(f, name, ready(want))
			assert.Zero(t, f.Status.Counts.Nodes)
		}
		foreign("names-the-secret", metal3v1.ReasonCredentialsMissing, func(*metal3v1.IronicReference) {})
		foreign("names-the-endpoint", metal3v1.ReasonCredentialsRefused, func(r *metal3v1.IronicReference) {
			r.Auth, r.CredentialsName, r.DisableCertificateVerification = metal3v1.AuthNone, "", true
		})
		var hosts metal3v1.BareMetalHostList
		require.NoError(t, w.List(t.Context(), &hosts, client.InNamespace(other.Name)))
		assert.Empty(t, hosts.Items)
		shared := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: other.Name, Name: "ironic"}, Data: secret.Data}
		require.NoError(t, w.Create(t.Context(), shared))
		with := w.discover("comes-with-credentials", func(d *metal3v1.BareMetalHostDiscovery) { d.Namespace, d.Spec.Ironic = other.Name, reference })
		w.status(with, "the administrator lets all share", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
			return s.Counts == metal3v1.DiscoveryCounts{Nodes: 1, Read: 1, Known: 1}
		})
		require.NoError(t, w.DeleteAllOf(t.Context(), &metal3v1.BareMetalHostDiscovery{}, client.InNamespace(other.Name)))
	})
	t.Run("no host was lost", func(t *testing.T) {
		i.Enrol(t, 1, 2)
		w.host("node-00002")
		assert.Len(t, w.hosts(), 2)
	})
}

func TestTheOperatorsOwnIronicIsForSomeNamespaces(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.operate(func(o *setup) { o.only, o.IronicNamespaces = []string{w.ns, w.system}, []string{w.ns} })
	foreign := w.discover("first", func(d *metal3v1.BareMetalHostDiscovery) { d.Namespace = w.system })
	w.status(foreign, "its condition says so", ready(metal3v1.ReasonEndpointNotShared))
	w.discover("second")
	w.host("node-00001")
	w.status(foreign, "it sees nothing", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.Nodes == 0 })
	require.NoError(t, w.Delete(t.Context(), foreign))
}

func TestTheEndOfAResourceLetsTheNextOneTakeItsMachines(t *testing.T) {
	w := newTestEnv(t)
	w.operate()
	slow := func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.Interval, d.Spec.ResyncInterval = &metav1.Duration{Duration: time.Second}, &metav1.Duration{Duration: time.Hour}
	}
	first := w.discover("a", slow, func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Paused = true })
	second := w.discover("b", slow)
	w.enrol(1)
	w.status(second, "it is the first one's", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.NotSelected == 1 })
	require.NoError(t, w.Delete(t.Context(), first))
	assert.Equal(t, "b", w.host("node-00001").Labels[metal3v1.DiscoveredByLabel])
}
