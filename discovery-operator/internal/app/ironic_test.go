// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// asking makes the operator ask a real Ironic.
func asking(i *ironictest.Ironic) func(*Options) {
	env := map[string]string{"IRONIC_ENDPOINT": i.Endpoint, "IRONIC_INSPECTOR_ENDPOINT": i.Inspector, "METAL3_AUTH_ROOT_DIR": "/nonexistent"}
	return func(o *Options) {
		o.Provisioner, o.rack = ProvisionerIronic, nil
		o.env = func(key string) string { return env[key] }
	}
}

// TestARealIronic takes machines in that report through the ramdisk's own API, and follows what becomes of them.
func TestARealIronic(t *testing.T) {
	w := newWorld(t)
	i := ironictest.Start(t, "journey")
	direct, err := ironic.New(i.Config(), nil)
	require.NoError(t, err)
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
	t.Run("credentials switch the driver, and the host is released", func(t *testing.T) {
		h := w.host("node-00001")
		w.credentials(h, "ipmi://192.0.2.1", true)
		w.released(h)
		n, err := direct.Node(t.Context(), uuids[0])
		require.NoError(t, err)
		assert.Equal(t, "ipmi", n.Driver)
		_, err = direct.Report(t.Context(), uuids[0])
		require.NoError(t, err, "the inventory stays, so that nobody has to inspect again")
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
		hosts := len(w.hosts())
		i.Up(t)
		w.status(d, "the endpoint is back", ready(metal3v1.ReasonDiscovering))
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

// TestARealIronicWithAuthentication follows a wrong password and its correction.
func TestARealIronicWithAuthentication(t *testing.T) {
	w := newWorld(t)
	i := ironictest.Start(t, "auth")
	i.Enrol(t, 1, 1)
	i.Down(t, false)
	users := filepath.Join(i.Dir, "users")
	// The password "right", as bcrypt; HTTP basic authentication reads such a file.
	require.NoError(t, os.WriteFile(users, []byte("admin:"+bcryptOfRight+"\n"), 0o600))
	conf := "[DEFAULT]\nauth_strategy = http_basic\nhttp_basic_auth_user_file = " + users + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(i.Dir, "ironic.d", "auth.conf"), []byte(conf), 0o600))
	i.Up(t)

	w.operate()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "ironic"}}
	secret.Data = map[string][]byte{"username": []byte("admin"), "password": []byte("wrong")}
	d := w.discover("authenticated", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.Ironic = &metal3v1.IronicReference{
			Endpoint: i.Endpoint, InspectorEndpoint: i.Inspector, Auth: metal3v1.AuthHTTPBasic, CredentialsName: "ironic",
		}
	})
	w.status(d, "the Secret is missing", ready(metal3v1.ReasonCredentialsMissing))
	require.NoError(t, w.Create(t.Context(), secret))
	w.status(d, "the password is wrong", ready(metal3v1.ReasonCredentialsRefused))
	var list corev1.EventList
	require.NoError(t, w.List(t.Context(), &list, client.InNamespace(w.ns)))
	for _, e := range list.Items {
		assert.NotContains(t, e.Message, "wrong")
	}
	w.patch(secret, `{"stringData":{"password":"right"}}`)
	// The Secret is read again after half a minute, and the poller has backed off.
	require.Eventually(t, func() bool { return len(w.hosts()) == 1 }, 3*time.Minute, time.Second)
	w.host("node-00001")
}

// bcryptOfRight is the bcrypt hash of "right".
const bcryptOfRight = "$2b$04$Adshpz0gPwun5W1l6CEP1e6eRKQaQ0rw6z.8gfWZMJjqP1zasl8j6"
