// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// asking makes the operator ask a real Ironic.
func asking(i *ironictest.Ironic) func(*setup) {
	env := map[string]string{"IRONIC_ENDPOINT": i.Endpoint, "IRONIC_INSPECTOR_ENDPOINT": i.Inspector, "METAL3_AUTH_ROOT_DIR": "/nonexistent"}
	return func(o *setup) {
		o.Provisioner = ProvisionerIronic
		o.env = func(key string) string { return env[key] }
	}
}

// seldom makes a resource ask a real Ironic for machines every few seconds, where a test follows machines that are hosts already.
func seldom(d *metal3v1.BareMetalHostDiscovery) {
	d.Spec.Interval = &metav1.Duration{Duration: 5 * time.Second}
}

// TestARealIronic takes machines in that report through the ramdisk's own API, and follows what becomes of them.
func TestARealIronic(t *testing.T) {
	w := newTestEnv(t)
	i := ironictest.Start(t, "journey")
	direct := i.Client(t)
	w.operate(asking(i))
	d := w.discover("all")
	uuids := i.Enrol(t, 3, 1)

	t.Run("unknown machines become hosts with their hardware", func(t *testing.T) {
		h := w.host("node-00002")
		assert.Equal(t, uuids[1], h.Status.Provisioning.ID)
		assert.Equal(t, "52:54:00:00:00:02", h.Spec.BootMACAddress)
		assert.Equal(t, "SN00000002", h.Status.HardwareDetails.SystemVendor.SerialNumber)
		assert.Equal(t, 16, h.Status.HardwareDetails.CPU.Count)
		assert.Len(t, h.Status.HardwareDetails.NIC, 2)
		w.status(d, "all three are hosts", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
			return s.Counts.Hosts == 3 && s.Counts.Waiting == 0 && ready(metal3v1.ReasonDiscovering)(s) && s.APIVersion != ""
		})
	})
	t.Run("a machine without serial, vendor and boot interface is taken in by what it has", func(t *testing.T) {
		var report map[string]any
		data, err := os.ReadFile(filepath.Join("testdata", "bare-report.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &report))
		i.EnrolReport(t, data)
		h := w.host("02-fc-00-00-00-01")
		assert.Equal(t, string(metal3v1.DetailBootMAC), h.Annotations[metal3v1.NameDetailAnnotation], "its host name stands for nothing")
	})
	t.Run("rack and port, which the switch says by LLDP, name a host", func(t *testing.T) {
		w.patch(d, `{"spec":{"resourceNameTemplate":{"expression":"${hardware.nics[0].lldp.switchSystemName.split('-')[0]}-${hardware.nics[0].lldp.portID}"}}}`)
		seen := func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.ObservedGeneration == d.Generation }
		w.status(d, "the change is seen", seen)
		i.Enrol(t, 1, 41)
		h := w.host("rack0002-ethernet1-1")
		assert.Equal(t, "52:54:00:00:00:29", h.Spec.BootMACAddress)
		assert.Equal(t, "rack0002-leaf", h.Status.HardwareDetails.NIC[0].LLDP.SwitchSystemName)
		w.patch(d, `{"spec":{"resourceNameTemplate":{"expression":null}}}`)
		w.status(d, "the change is seen", seen)
	})
	t.Run("credentials switch the driver, and the host is released", func(t *testing.T) {
		h := w.host("node-00001")
		w.credentials(h, "ipmi://192.0.2.1", true)
		w.released(h)
		n, err := direct.Node(t.Context(), uuids[0])
		require.NoError(t, err)
		assert.Equal(t, "ipmi", n.Driver)
		_, err = direct.Report(t.Context(), uuids[0])
		require.NoError(t, err, "the inventory stays, so that no new inspection is needed")
	})
	t.Run("a driver that is not enabled is reported", func(t *testing.T) {
		h := w.host("node-00002")
		w.credentials(h, "redfish://192.0.2.2/", true)
		w.handedOver(h, metal3v1.ReasonDriverRefused)
	})
	t.Run("deleting a host deletes its node", func(t *testing.T) {
		h := w.host("node-00003")
		require.NoError(t, w.Delete(t.Context(), h))
		w.gone(h)
		_, err := direct.Node(t.Context(), uuids[2])
		require.ErrorIs(t, err, inventory.ErrNotFound)
	})
	t.Run("while Ironic is down a condition says so, and afterwards all goes on", func(t *testing.T) {
		i.Down(t, false)
		w.status(d, "the endpoint is not reachable", ready(metal3v1.ReasonEndpointUnreachable))
		hosts, waits := len(w.hosts()), w.host("02-fc-00-00-00-01")
		w.handedOver(waits, metal3v1.ReasonEndpointUnreachable)
		i.Up(t)
		w.status(d, "the endpoint is back", ready(metal3v1.ReasonDiscovering))
		w.handedOver(waits, metal3v1.ReasonWaitingForCredentials)
		assert.Len(t, w.hosts(), hosts)
		i.Enrol(t, 1, 20)
		w.host("node-00020")
	})
	t.Run("another database deletes nothing", func(t *testing.T) {
		i.Enrol(t, 6, 30)
		w.host("node-00035")
		hosts := len(w.hosts())
		i.Down(t, true)
		i.Up(t)
		w.status(d, "the nodes are missed", ready(metal3v1.ReasonNodesDisappeared))
		assert.Len(t, w.hosts(), hosts)
	})
}

// TestARealIronicWithAuthentication follows a wrong password and its correction, beside resources that have other credentials.
func TestARealIronicWithAuthentication(t *testing.T) {
	w := newTestEnv(t)
	i := ironictest.Start(t, "auth")
	i.Enrol(t, 2, 1)
	i.Down(t, false)
	users := filepath.Join(i.Dir, "users")
	// The password "right", as bcrypt; HTTP basic authentication reads such a file.
	var lines string
	for _, user := range []string{"admin", "second", "third"} {
		lines += user + ":" + bcryptOfRight + "\n"
	}
	require.NoError(t, os.WriteFile(users, []byte(lines), 0o600))
	conf := "[DEFAULT]\nauth_strategy = http_basic\nhttp_basic_auth_user_file = " + users + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(i.Dir, "ironic.d", "auth.conf"), []byte(conf), 0o600))
	i.Up(t)

	front := newCounter(t, i.Endpoint)
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-other"}}
	require.NoError(t, w.Create(t.Context(), other))
	w.operate(func(o *setup) { o.only = []string{w.ns, other.Name} })
	reference := func(secret string) *metal3v1.IronicReference {
		return &metal3v1.IronicReference{
			Endpoint: front.URL, InspectorEndpoint: i.Inspector, Auth: metal3v1.AuthHTTPBasic, CredentialsName: secret,
		}
	}
	credentials := func(namespace, name, user, password string) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		secret.Data = map[string][]byte{"username": []byte(user), "password": []byte(password)}
		require.NoError(t, w.Create(t.Context(), secret))
		return secret
	}
	d := w.discover("authenticated", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Ironic = reference("ironic") })
	w.status(d, "the Secret is missing", ready(metal3v1.ReasonCredentialsMissing))
	secret := credentials(w.ns, "ironic", "admin", "wrong")
	w.status(d, "the password is wrong", ready(metal3v1.ReasonCredentialsRefused))
	var list corev1.EventList
	require.NoError(t, w.List(t.Context(), &list, client.InNamespace(w.ns)))
	for _, e := range list.Items {
		assert.NotContains(t, e.Message, "wrong")
	}

	t.Run("a session with accepted credentials sees machines that the others do not, and blocks them no longer", func(t *testing.T) {
		credentials(w.ns, "second", "second", "right")
		second := w.discover("second", func(d *metal3v1.BareMetalHostDiscovery) {
			d.Spec.Ironic, d.Spec.Selector = reference("second"), "hardware.hostname == 'node-00001'"
		})
		w.status(second, "its credentials are right", ready(metal3v1.ReasonDiscovering))
		assert.Equal(t, "second", w.host("node-00001").Labels[metal3v1.DiscoveredByLabel], "the older one is not let in")
		w.status(d, "the first one's still are wrong", ready(metal3v1.ReasonCredentialsRefused))
		assert.Zero(t, d.Status.Counts.Nodes)
	})
	t.Run("one reads for all, whatever credentials they have", func(t *testing.T) {
		w.patch(secret, `{"stringData":{"password":"right"}}`)
		// The Secret is read again when the session is tried again, which is less and less often.
		require.Eventually(t, func() bool {
			return w.Get(t.Context(), client.ObjectKeyFromObject(d), d) == nil && ready(metal3v1.ReasonDiscovering)(&d.Status) && d.Status.Counts.Known == 2
		}, 3*time.Minute, time.Second)
		assert.Equal(t, "authenticated", w.host("node-00002").Labels[metal3v1.DiscoveredByLabel])
		credentials(w.ns, "third", "third", "right")
		third := w.discover("third", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Ironic = reference("third") })
		w.status(third, "it is let in", ready(metal3v1.ReasonDiscovering))
		front.reset()
		w.eventually("it is read several times", func() bool { return front.lists() > 5 })
		assert.Len(t, front.readers(), 1, "one of three users lists")
	})
	t.Run("another namespace waits until this one releases the Ironic, with any credentials", func(t *testing.T) {
		credentials(other.Name, "ironic", "second", "right")
		foreign := w.discover("foreign", func(d *metal3v1.BareMetalHostDiscovery) { d.Namespace, d.Spec.Ironic = other.Name, reference("ironic") })
		w.status(foreign, "its condition names the owner of the machines", ready(metal3v1.ReasonEndpointNotShared))
		c := meta.FindStatusCondition(foreign.Status.Conditions, metal3v1.ConditionEndpointReady)
		assert.Contains(t, c.Message, w.ns)
		assert.Zero(t, foreign.Status.Counts.Nodes)
		require.NoError(t, w.DeleteAllOf(t.Context(), &metal3v1.BareMetalHostDiscovery{}, client.InNamespace(w.ns)))
		w.status(foreign, "no other resource names it", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
			return s.Counts == metal3v1.DiscoveryCounts{Nodes: 2, Read: 2, Known: 2}
		})
		require.NoError(t, w.Delete(t.Context(), foreign))
	})
}

// counter stands before a real Ironic and notes who lists.
type counter struct {
	*httptest.Server
	mu   sync.Mutex
	seen map[string]int
}

func newCounter(t *testing.T, endpoint string) *counter {
	t.Helper()
	target, err := url.Parse(endpoint)
	require.NoError(t, err)
	target.Path = ""
	proxy := httputil.NewSingleHostReverseProxy(target)
	c := &counter{}
	c.reset()
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, _, _ := r.BasicAuth(); r.URL.Query().Get("limit") == "1000" && r.URL.Query().Get("node") == "" {
			c.mu.Lock()
			c.seen[user]++
			c.mu.Unlock()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = map[string]int{}
}

func (c *counter) lists() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, count := range c.seen {
		n += count
	}
	return n
}

func (c *counter) readers() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.seen))
}

// bcryptOfRight is the bcrypt hash of "right".
const bcryptOfRight = "$2b$04$Adshpz0gPwun5W1l6CEP1e6eRKQaQ0rw6z.8gfWZMJjqP1zasl8j6"
