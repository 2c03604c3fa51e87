// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/discovery-operator/internal/admission"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

func TestWhoseWordCountsAboutAHost(t *testing.T) {
	resource := func(namespace, endpoint string, age int, change ...func(*metal3v1.BareMetalHostDiscovery)) metal3v1.BareMetalHostDiscovery {
		d := metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprint("r", age), CreationTimestamp: metav1.Unix(int64(1000-age), 0),
		}}
		if endpoint != "" {
			d.Spec.Ironic = &metal3v1.IronicReference{Endpoint: endpoint}
		}
		for _, c := range change {
			c(&d)
		}
		return d
	}
	refused := func(d *metal3v1.BareMetalHostDiscovery) {
		d.Status.Conditions = []metav1.Condition{{
			Type: metal3v1.ConditionEndpointReady, Status: metav1.ConditionFalse, Reason: metal3v1.ReasonCredentialsRefused, ObservedGeneration: d.Generation,
		}}
	}
	address := func(namespace string, ref *metal3v1.IronicReference) inventory.Address {
		endpoint := "own"
		if ref != nil {
			endpoint = ref.Endpoint
		}
		return inventory.Address{Endpoint: endpoint, Ironic: endpoint, View: endpoint, Shared: strings.HasPrefix(namespace, "shared")}
	}
	type list = []metal3v1.BareMetalHostDiscovery
	for name, c := range map[string]struct {
		given list
		want  []string
	}{
		"its own namespace":                      {list{resource("ns", "x", 1)}, []string{"ns x"}},
		"another namespace":                      {list{resource("tenant", "x", 1)}, nil},
		"the operator's own Ironic":              {list{resource("tenant", "", 1)}, []string{"tenant own"}},
		"a namespace that shares":                {list{resource("shared-1", "x", 1)}, []string{"shared-1 x"}},
		"an Ironic of another namespace":         {list{resource("tenant", "x", 2), resource("ns", "x", 1)}, nil},
		"an Ironic that was taken without right": {list{resource("tenant", "x", 2, refused), resource("ns", "x", 1)}, []string{"ns x"}},
		"one Ironic is asked once":               {list{resource("ns", "x", 2), resource("ns", "x", 1)}, []string{"ns x"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, q := range questions(c.given, "ns", address) {
				got = append(got, q.namespace+" "+address("", q.ref).Endpoint)
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// pretender is a server that has a node with the driver of discovery for each MAC.
func pretender(t *testing.T, asked *atomic.Int64) string {
	t.Helper()
	const uuid = "00000000-0000-4000-8000-0000000000ff"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
		w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1.96")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/ports") && r.URL.Query().Get("address") != "":
			asked.Add(1)
			_, _ = fmt.Fprintf(w, `{"ports":[{"uuid":"00000000-0000-4000-8000-0000000000fe","address":%q,"node_uuid":%q}]}`, r.URL.Query().Get("address"), uuid)
		case strings.HasSuffix(r.URL.Path, "/nodes/"+uuid):
			_, _ = fmt.Fprintf(w, `{"uuid":%q,"driver":"fake-hardware","provision_state":"enroll"}`, uuid)
		default:
			_, _ = fmt.Fprint(w, `{"version":{"id":"v1"},"nodes":[],"ports":[]}`)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1/"
}

// TestATenantCannotRefuseTheHostsOfOthers has a tenant whose Ironic claims every machine, and another whose Ironic never answers.
func TestATenantCannotRefuseTheHostsOfOthers(t *testing.T) {
	w := newTestEnv(t)
	dir, ca := certificate(t)
	bind := "127.0.0.1:" + porttest.Free(t)
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-tenant"}}
	require.NoError(t, w.Create(t.Context(), tenant))
	var asked atomic.Int64
	claims := &metal3v1.IronicReference{Endpoint: pretender(t, &asked)}
	t.Cleanup(func() { // the operators of other tests see no namespace but their own
		_ = w.DeleteAllOf(context.Background(), &metal3v1.BareMetalHostDiscovery{}, client.InNamespace(tenant.Name))
	})
	w.discover("claims", func(d *metal3v1.BareMetalHostDiscovery) { d.Namespace, d.Spec.Ironic = tenant.Name, claims })
	w.discover("hangs", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Namespace, d.Spec.Ironic = tenant.Name, &metal3v1.IronicReference{Endpoint: silent(t)}
	})
	w.operate(func(o *setup) {
		o.only, o.WebhookBindAddress, o.WebhookCertDir = []string{w.ns, tenant.Name}, bind, dir
	})
	checked(w, admissionregistrationv1.WebhookClientConfig{URL: new("https://" + bind + admission.Path), CABundle: ca})
	register := func(name string, i int, o ...client.CreateOption) error {
		h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
		h.Spec = metal3v1.BareMetalHostSpec{
			Online: true, BootMACAddress: demo.MAC(i, 0), AutomatedCleaningMode: "metadata",
			BMC: &metal3v1.BMCDetails{Address: fmt.Sprintf("redfish://192.0.2.%d/redfish/v1/Systems/1", i), CredentialsName: "x"},
		}
		return w.Create(t.Context(), h, o...)
	}
	require.NoError(t, register("first", 1))
	w.eventually("the check answers", func() bool { return register("twin", 1, client.DryRunAll) != nil })
	require.NoError(t, register("second", 2))
	assert.Zero(t, asked.Load(), "the tenant's Ironic is not asked about hosts of others")

	w.discover("own", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.Ironic = &metal3v1.IronicReference{Endpoint: pretender(t, &asked)}
	})
	w.eventually("what the namespace itself names counts", func() bool {
		err := register("third", 3, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "has discovered the machine")
	})
}

// TestTheQuestionsAboutOneHostEndTogether asks more Ironics than are asked at once, none of which answers.
func TestTheQuestionsAboutOneHostEndTogether(t *testing.T) {
	w := newTestEnv(t)
	for i := range 2 * maxQuestions {
		w.discover(fmt.Sprint("hangs-", i), func(d *metal3v1.BareMetalHostDiscovery) {
			d.Spec.Ironic = &metal3v1.IronicReference{Endpoint: silent(t)}
		})
	}
	from := newSources(Options{env: func(string) string { return "" }}, nil, w.Client, nil)
	from.dialer.Timeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	assert.Empty(t, discovered{w.Client, from}.Discovered(ctx, w.ns, demo.MAC(1, 0)), "it returns")
}
