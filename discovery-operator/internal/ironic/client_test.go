// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
)

const password = "p4ss-w0rd/&"

// service is an Ironic whose answers a test makes up.
type service struct {
	*httptest.Server
	mux      *http.ServeMux
	version  string
	requests []string
}

func newService(t *testing.T, version string) *service {
	s := &service{mux: http.NewServeMux(), version: version}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
		w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", s.version)
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error_message":"{\"faultcode\": \"Client\", \"faultstring\": \"It could not be found.\", \"debuginfo\": null}"}`))
	})
	s.mux.HandleFunc("GET /v1/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id":"v1"}`)) })
	return s
}

func (s *service) client(t *testing.T, change ...func(*ironic.Config)) *ironic.Client {
	t.Helper()
	config := ironic.Config{Endpoint: s.URL, Timeout: 2 * time.Second}
	for _, c := range change {
		c(&config)
	}
	client, err := ironic.New(config, nil)
	require.NoError(t, err)
	return client
}

func problem(t *testing.T, err error) inventory.Problem {
	t.Helper()
	var e *inventory.EndpointError
	require.ErrorAs(t, err, &e)
	return e.Problem
}

func TestListsArePagedByMarkerAndNextIsNotFollowed(t *testing.T) {
	s := newService(t, "1.96")
	const total = 2503
	s.mux.HandleFunc("GET /v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "1.96", r.Header.Get("X-OpenStack-Ironic-API-Version"))
		assert.Equal(t, "true", r.URL.Query().Get("include_children"))
		from := 0
		if m := r.URL.Query().Get("marker"); m != "" {
			_, err := fmt.Sscanf(m, "n%d", &from)
			assert.NoError(t, err)
			from++
		}
		page := map[string]any{}
		var nodes []map[string]any
		for i := from; i < min(from+1000, total); i++ {
			nodes = append(nodes, map[string]any{"uuid": fmt.Sprintf("n%d", i), "name": nil, "provision_state": "enroll", "reservation": nil})
		}
		page["nodes"] = nodes
		if len(nodes) == 1000 {
			page["next"] = "http://attacker.invalid/v1/nodes?marker=x"
		}
		assert.NoError(t, json.NewEncoder(w).Encode(page))
	})
	nodes, err := s.client(t).Nodes(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, nodes, total)
	assert.Len(t, s.requests, 1+3)
}

func TestAListThatLeadsNowhereEnds(t *testing.T) {
	s := newService(t, "1.96")
	s.mux.HandleFunc("GET /v1/ports", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"ports":[{"uuid":"p"}],"next":"again"}`))
	})
	_, err := s.client(t).Ports(t.Context(), "")
	assert.Equal(t, inventory.ProblemInvalid, problem(t, err))
}

func TestInventoryIsAskedFromTheServiceThatHasIt(t *testing.T) {
	flat := demo.Machine(7)
	var parts map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(flat, &parts))
	builtin := fmt.Appendf(nil, `{"inventory":%s,"plugin_data":{"auto_discovered":true,"all_interfaces":{"eno1":{"pxe_enabled":true}},
		"parsed_lldp":{"eno1":{"switch_chassis_id":"00:11","switch_port_id":"eth7","switch_system_name":"leaf-3","switch_port_untagged_vlan_id":101}}}}`, parts["inventory"])

	t.Run("Ironic itself", func(t *testing.T) {
		s := newService(t, "1.96")
		s.mux.HandleFunc("GET /v1/nodes/u/inventory", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(builtin) })
		r, err := s.client(t).Report(t.Context(), "u")
		require.NoError(t, err)
		assert.True(t, r.AutoDiscovered)
		assert.True(t, r.Hardware.NIC[0].PXE)
		assert.Equal(t, "leaf-3", r.Hardware.NIC[0].LLDP.SwitchSystemName)
		assert.EqualValues(t, 101, r.Hardware.NIC[0].VLANID)
	})
	t.Run("the inspector beside it", func(t *testing.T) {
		s := newService(t, "1.82")
		inspector := newService(t, "")
		inspector.mux.HandleFunc("GET /v1/introspection/u/data", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(flat) })
		r, err := s.client(t, func(c *ironic.Config) { c.InspectorEndpoint = inspector.URL }).Report(t.Context(), "u")
		require.NoError(t, err)
		assert.Equal(t, demo.MAC(7, 0), r.BootMAC)
	})
	t.Run("Ironic, when the inspector has none", func(t *testing.T) {
		s := newService(t, "1.96")
		s.mux.HandleFunc("GET /v1/nodes/u/inventory", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(builtin) })
		inspector := newService(t, "")
		_, err := s.client(t, func(c *ironic.Config) { c.InspectorEndpoint = inspector.URL }).Report(t.Context(), "u")
		require.NoError(t, err)
	})
	t.Run("no inventory yet", func(t *testing.T) {
		s := newService(t, "1.96")
		_, err := s.client(t).Report(t.Context(), "u")
		require.ErrorIs(t, err, inventory.ErrNotFound)
	})
}

func TestEachFailureIsOneProblemWithoutTheCredentials(t *testing.T) {
	reply := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) }
	}
	secret := fmt.Sprintf(`{"error": {"code": 401, "message": "wrong password %s"}}`, password)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		version string
		want    inventory.Problem
		text    string
	}{
		"refused":                              {handler: reply(401, secret), want: inventory.ProblemCredentials, text: "wrong password ******"},
		"a protected node":                     {handler: reply(403, `{"error_message":"{\"faultstring\":\"Node u is protected and cannot be undeployed, rebuilt or deleted\"}"}`), want: inventory.ProblemRefused, text: "is protected"},
		"a role that may not":                  {handler: reply(403, `{"error_message":"{\"faultstring\":\"Access was denied to the following resource: baremetal:node:list\"}"}`), want: inventory.ProblemCredentials},
		"forbidden":                            {handler: reply(403, ""), want: inventory.ProblemCredentials},
		"unavailable":                          {handler: reply(503, ""), want: inventory.ProblemUnreachable},
		"as much as Ironic may clean at once":  {handler: reply(503, `{"error_message":"{\"faultstring\":\"Unable to process request at this time. The concurrent action limit for unprovisioning has been reached. Please contact your administrator and try again later.\"}"}`), want: inventory.ProblemFull, text: "unprovisioning"},
		"as much as Ironic may do at once":     {handler: reply(503, `{"error_message":"{\"faultstring\":\"Requested action cannot be performed due to lack of free conductor workers.\"}"}`), want: inventory.ProblemFull},
		"not found":                            {want: inventory.ProblemNotFound, text: "It could not be found."},
		"a driver that no conductor has":       {handler: reply(404, `{"error_message":"{\"faultcode\": \"Client\", \"faultstring\": \"No valid host was found. Reason: No conductor service registered which supports driver ipmi.\"}"}`), want: inventory.ProblemRefused, text: "driver ipmi"},
		"a page of Ironic's that there is not": {handler: reply(404, `{"error_message":"<html>The resource could not be found.</html>"}`), want: inventory.ProblemNotFound},
		"nothing that ironic-inspector knows":  {handler: reply(404, `{"error":{"message":"Node u was not found"}}`), want: inventory.ProblemNotFound},
		"a proxy without a route to Ironic":    {handler: reply(404, "default backend - 404"), want: inventory.ProblemInvalid, text: "HTTP 404"},
		"a web server without Ironic":          {handler: reply(404, "<html><h1>404 Not Found</h1></html>"), want: inventory.ProblemInvalid},
		"a gateway that writes JSON":           {handler: reply(404, `{"message":"no Route matched with those values"}`), want: inventory.ProblemInvalid},
		"a proxy that says nothing":            {handler: reply(404, ""), want: inventory.ProblemInvalid},
		"broken":                               {handler: reply(500, `{"error_message":"{\"faultstring\":\"database is locked\"}"}`), want: inventory.ProblemInvalid, text: "database is locked"},
		"a fault object":                       {handler: reply(400, `{"error_message":{"faultstring":"Unexpected arguments"}}`), want: inventory.ProblemRefused, text: "Unexpected arguments"},
		"a web page":                           {handler: reply(200, "<html>"), want: inventory.ProblemInvalid},
		"a redirect": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://attacker.invalid/", http.StatusFound)
		}, want: inventory.ProblemInvalid},
		"slow":              {handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: inventory.ProblemTimedOut},
		"an older API":      {version: "1.60", want: inventory.ProblemTooOld, text: "1.81"},
		"no Ironic":         {version: " ", want: inventory.ProblemInvalid},
		"endless":           {handler: endless, want: inventory.ProblemInvalid, text: "longer than"},
		"the wrong version": {handler: reply(406, ""), want: inventory.ProblemTooOld},
	} {
		t.Run(name, func(t *testing.T) {
			version := c.version
			if version == "" {
				version = "1.96"
			}
			s := newService(t, strings.TrimSpace(version))
			if c.handler != nil {
				s.mux.HandleFunc("GET /v1/nodes", c.handler)
			}
			_, err := s.client(t, func(c *ironic.Config) {
				c.Auth, c.Username, c.Password = ironic.AuthHTTPBasic, "admin", password
				if name == "slow" {
					c.Timeout = 200 * time.Millisecond
				} else {
					c.Timeout = time.Minute
				}
			}).Nodes(t.Context(), "")
			assert.Equal(t, c.want, problem(t, err), err)
			assert.Contains(t, err.Error(), c.text)
			assert.NotContains(t, err.Error(), password)
			assert.NotContains(t, fmt.Sprintf("%+v %#v", err, err), password)
		})
	}
	t.Run("no server", func(t *testing.T) {
		c, err := ironic.New(ironic.Config{Endpoint: "http://admin:" + "pw-in-url" + "@127.0.0.1:1/"}, nil)
		require.NoError(t, err)
		_, err = c.Nodes(t.Context(), "")
		assert.Equal(t, inventory.ProblemUnreachable, problem(t, err))
		assert.NotContains(t, err.Error(), "pw-in-url")
	})
}

// endless answers with more than a client should read.
func endless(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte(`{"nodes":[{"uuid":"`))
	block := []byte(strings.Repeat("x", 1<<20))
	for range 40 {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func TestAConfigurationDoesNotPrintItsSecrets(t *testing.T) {
	c := ironic.Config{Endpoint: "https://admin:" + "hidden" + "@ironic.example:6385/v1/?token=hidden", Password: password}
	for _, s := range []string{fmt.Sprint(c), fmt.Sprintf("%v %+v %#v %s", c, c, c, c)} {
		assert.NotContains(t, s, "hidden")
		assert.NotContains(t, s, password)
	}
	assert.Equal(t, "https://ironic.example:6385/v1/", c.String())
}

func TestSettingsOfTheBaremetalOperatorAreAccepted(t *testing.T) {
	env := map[string]string{
		"IRONIC_ENDPOINT": "https://ironic:6385/v1/", "METAL3_AUTH_ROOT_DIR": "/auth", "IRONIC_CACERT_FILE": "/ca", "IRONIC_INSECURE": "True",
		"IRONIC_SKIP_CLIENT_SAN_VERIFY": "true", "DEPLOY_KERNEL_URL": "http://k", "DEPLOY_RAMDISK_URL": "http://r", "DEPLOY_ISO_URL": "http://i",
		"IRONIC_EXTERNAL_URL_V6": "http://[::1]",
	}
	files := map[string]string{
		"/auth/ironic/username": "u\n", "/auth/ironic/password": "p\n", "/ca": "pem", "/opt/metal3/certs/ca/tls.crt": "usual",
		"/opt/metal3/certs/client/tls.crt": "cert", "/opt/metal3/certs/client/tls.key": "key",
	}
	getenv := func(k string) string { return env[k] }
	read := func(path string) ([]byte, error) { return []byte(files[path]), nil }
	c, err := ironic.FromEnvironment(getenv, read)
	require.NoError(t, err)
	assert.Equal(t, ironic.Config{
		Endpoint: "https://ironic:6385/v1/", Auth: ironic.AuthHTTPBasic, Username: "u", Password: "p", CA: []byte("pem"), Insecure: true, SkipSAN: true,
		Cert: []byte("cert"), Key: []byte("key"), Ramdisk: ironic.Ramdisk{Kernel: "http://k", Initramfs: "http://r", ISO: "http://i", ExternalV6: "http://[::1]"},
	}.Fingerprint(), c.Fingerprint())
	delete(env, "IRONIC_CACERT_FILE")
	c, err = ironic.FromEnvironment(getenv, read)
	require.NoError(t, err)
	assert.Equal(t, "usual", string(c.CA))

	assert.Empty(t, ironic.Unused(getenv, true))
	assert.Equal(t, []string{"DEPLOY_KERNEL_URL", "DEPLOY_RAMDISK_URL", "DEPLOY_ISO_URL", "IRONIC_EXTERNAL_URL_V6"}, ironic.Unused(getenv, false))
	delete(env, "DEPLOY_RAMDISK_URL")
	env["PROVISIONING_LIMIT"] = "20"
	assert.Equal(t, []string{"PROVISIONING_LIMIT", "DEPLOY_KERNEL_URL"}, ironic.Unused(getenv, true))
}

// TestTheEndOfAnInspectionIsWhatIronicInspectorSays: Ironic may have taken the end of the one before for it.
func TestTheEndOfAnInspectionIsWhatIronicInspectorSays(t *testing.T) {
	before, after := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 13, 0, 0, 500000000, time.UTC)
	for name, c := range map[string]struct {
		iface, ended, status string
		want                 hoststate.Node
	}{
		"it has not begun": {"inspector", "2026-11-21T13:00:01+00:00", `{"finished_at":"2026-11-21T12:00:00","error":null}`,
			hoststate.Node{State: "manageable", Inspected: before, Reported: before}},
		"it is under way": {"inspector", "2026-11-21T13:00:01+00:00", `{"finished_at":null,"error":null}`, hoststate.Node{State: "inspect wait"}},
		"it has ended": {"inspector", "2026-11-21T13:00:01+00:00", `{"finished_at":"2026-11-21T13:00:00.5"}`,
			hoststate.Node{State: "manageable", Inspected: after, Reported: after}},
		"it failed": {"inspector", "2026-11-21T13:00:01+00:00", `{"finished_at":"2026-11-21T13:00:00","error":"timeout"}`,
			hoststate.Node{State: "manageable", LastError: "timeout"}},
		"the machine was discovered": {"inspector", "", `{"finished_at":"2026-11-21T12:00:00"}`, hoststate.Node{State: "manageable", Reported: before}},
		"it does not know the machine": {"inspector", "2026-11-21T12:00:00+00:00", "",
			hoststate.Node{State: "manageable", Inspected: before}},
		"the management controller was asked": {"redfish", "2026-11-21T12:00:00Z", `{"finished_at":"2026-11-21T13:00:00.5"}`,
			hoststate.Node{State: "manageable", Inspected: before, Reported: after}},
	} {
		t.Run(name, func(t *testing.T) {
			s, inspector := newService(t, "1.82"), newService(t, "")
			s.mux.HandleFunc("GET /v1/nodes/u", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"uuid":"u","provision_state":"manageable","inspect_interface":%q,"inspection_finished_at":%q}`, c.iface, c.ended)
			})
			if c.status != "" {
				inspector.mux.HandleFunc("GET /v1/introspection/u", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.status)) })
			}
			n, err := s.client(t, func(config *ironic.Config) { config.InspectorEndpoint = inspector.URL }).Examined(t.Context(), "u")
			require.NoError(t, err)
			assert.True(t, c.want.Inspected.Equal(n.Inspected), n.Inspected)
			assert.True(t, c.want.Reported.Equal(n.Reported), n.Reported)
			assert.Equal(t, []string{c.want.State, c.want.LastError}, []string{n.State, n.LastError})
		})
	}
}

func TestAPortThatANodeLacksIsMadeUnlessAnotherNodeHasItsMAC(t *testing.T) {
	const mac = "52:54:00:00:00:01"
	for name, c := range map[string]struct {
		fault, port string
		want        error
	}{
		"it is made": {},
		"Ironic works on the node": {
			"Node u is locked by host conductor-0, please retry after the current operation is completed.", "", inventory.ErrBusy,
		},
		"another node has the MAC": {"A port with MAC address " + mac + " already exists.", "other", inventory.ErrRefused},
		"it was made a moment ago": {"A port with MAC address " + mac + " already exists.", "u", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, "1.96")
			s.mux.HandleFunc("GET /v1/ports", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("address") == mac && c.port != "" {
					_, _ = fmt.Fprintf(w, `{"ports":[{"uuid":"p","address":%q,"node_uuid":%q}]}`, mac, c.port)
					return
				}
				_, _ = w.Write([]byte(`{"ports":[]}`))
			})
			s.mux.HandleFunc("POST /v1/ports", func(w http.ResponseWriter, _ *http.Request) {
				if c.fault == "" {
					w.WriteHeader(http.StatusCreated)
					return
				}
				w.WriteHeader(http.StatusConflict)
				_, _ = fmt.Fprintf(w, `{"error_message":"{\"faultstring\":\"%s\"}"}`, c.fault)
			})
			err := s.client(t).EnsurePort(t.Context(), "u", strings.ToUpper(mac))
			require.ErrorIs(t, err, c.want)
		})
	}
}

func TestANodeGetsItsRamdiskBeforeAnInspection(t *testing.T) {
	all := ironic.Ramdisk{Kernel: "http://k", Initramfs: "http://r", ISO: "http://i"}
	for name, c := range map[string]struct {
		ramdisk ironic.Ramdisk
		node    hoststate.Node
		mode    metal3v1.InspectionMode
		want    string
	}{
		"from the network": {all, hoststate.Node{Boot: "ipxe", Inspector: "agent"}, metal3v1.InspectionAgent,
			`[{"op":"add","path":"/driver_info/deploy_kernel","value":"http://k"},{"op":"add","path":"/driver_info/deploy_ramdisk","value":"http://r"}]`},
		"as virtual media": {all, hoststate.Node{Boot: "redfish-virtual-media", Inspector: "agent"}, "",
			`[{"op":"add","path":"/driver_info/deploy_iso","value":"http://i"}]`},
		"as virtual media of kernel and ramdisk": {ironic.Ramdisk{Kernel: "http://k", Initramfs: "http://r"},
			hoststate.Node{Boot: "redfish-virtual-media", Inspector: "agent", Info: map[string]string{"deploy_kernel": "http://k", "deploy_ramdisk": "http://old"}}, "",
			`[{"op":"add","path":"/driver_info/deploy_ramdisk","value":"http://r"}]`},
		"over IPv6": {ironic.Ramdisk{ExternalV6: "http://[::1]"},
			hoststate.Node{Inspector: "agent", Info: map[string]string{"redfish_address": "https://[2001:db8::1]:8000"}}, "",
			`[{"op":"add","path":"/driver_info/external_http_url","value":"http://[::1]"}]`},
		"not over IPv4": {ironic.Ramdisk{ExternalV6: "http://[::1]"},
			hoststate.Node{Inspector: "agent", Info: map[string]string{"ipmi_address": "192.0.2.1"}}, "", ""},
		"with another interface": {all, hoststate.Node{Boot: "ipxe", Inspector: "redfish", Info: map[string]string{"deploy_kernel": "http://k", "deploy_ramdisk": "http://r"}},
			"", `[{"op":"replace","path":"/inspect_interface","value":"agent"}]`},
		"none when the management controller is asked": {all, hoststate.Node{Inspector: "agent"}, metal3v1.InspectionFast,
			`[{"op":"replace","path":"/inspect_interface","value":"redfish"}]`},
		"Ironic's own settings": {ironic.Ramdisk{}, hoststate.Node{Boot: "ipxe", Inspector: "agent"}, "", ""},
		"half of it":            {ironic.Ramdisk{Kernel: "http://k"}, hoststate.Node{Boot: "ipxe", Inspector: "agent"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, "1.96")
			s.mux.HandleFunc("GET /v1/drivers/redfish", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"enabled_inspect_interfaces":["redfish","agent"]}`))
			})
			patch := ""
			s.mux.HandleFunc("PATCH /v1/nodes/u", func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				patch = string(body)
				_, _ = w.Write([]byte(`{}`))
			})
			s.mux.HandleFunc("PUT /v1/nodes/u/states/provision", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
			client := s.client(t, func(config *ironic.Config) { config.Ramdisk = c.ramdisk })
			c.node.UUID, c.node.Driver = "u", "redfish"
			require.NoError(t, client.Inspect(t.Context(), c.node, c.mode, hoststate.Machine{}))
			assert.Equal(t, c.want, patch)
			assert.Equal(t, "PUT /v1/nodes/u/states/provision", s.requests[len(s.requests)-1])
		})
	}
}

// TestANodeGetsItsRamdiskBeforeIronicBootsIt has machines that were discovered, which are never inspected.
func TestANodeGetsItsRamdiskBeforeIronicBootsIt(t *testing.T) {
	const change, ask = `[{"op":"add","path":"/driver_info/deploy_kernel","value":"http://k"},{"op":"add","path":"/driver_info/deploy_ramdisk","value":"http://r"}]`,
		"PUT /v1/nodes/u/states/provision"
	provide := func(target string) func(context.Context, *ironic.Client) error {
		return func(ctx context.Context, c *ironic.Client) error { return c.SetProvision(ctx, "u", target) }
	}
	deploy := func(ctx context.Context, c *ironic.Client) error { return c.Deploy(ctx, "u", osimage.ConfigDrive{}) }
	for name, c := range map[string]struct {
		do         func(context.Context, *ironic.Client) error
		own, has   bool
		locked     bool
		want, body string
	}{
		"a cleaning before the first use":  {do: provide("provide"), want: change, body: `{"target":"provide"}`},
		"a cleaning after the last use":    {do: provide("deleted"), want: change, body: `{"target":"deleted"}`},
		"a deployment":                     {do: deploy, want: change, body: `{"target":"active"}`},
		"where the node has it":            {do: deploy, has: true, body: `{"target":"active"}`},
		"Ironic's own":                     {do: deploy, own: true, body: `{"target":"active"}`},
		"nothing boots for":                {do: provide("manage"), body: `{"target":"manage"}`},
		"an end of what Ironic waits for":  {do: provide("deleted"), locked: true, want: change, body: `{"target":"deleted"}`},
		"not before Ironic has written it": {do: provide("provide"), locked: true, want: change},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, "1.96")
			patch, body := "", ""
			read := func(r *http.Request) string {
				text, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				return strings.TrimSpace(string(text))
			}
			s.mux.HandleFunc("GET /v1/nodes/u", func(w http.ResponseWriter, _ *http.Request) {
				info := `{}`
				if c.has {
					info = `{"deploy_kernel":"http://k","deploy_ramdisk":"http://r"}`
				}
				_, _ = fmt.Fprintf(w, `{"uuid":"u","boot_interface":"ipxe","driver_info":%s}`, info)
			})
			s.mux.HandleFunc("PATCH /v1/nodes/u", func(w http.ResponseWriter, r *http.Request) {
				patch = read(r)
				if c.locked {
					w.WriteHeader(http.StatusConflict)
				}
				_, _ = w.Write([]byte(`{}`))
			})
			s.mux.HandleFunc(ask, func(w http.ResponseWriter, r *http.Request) {
				body = read(r)
				w.WriteHeader(http.StatusAccepted)
			})
			client := s.client(t, func(config *ironic.Config) {
				if !c.own {
					config.Ramdisk = ironic.Ramdisk{Kernel: "http://k", Initramfs: "http://r"}
				}
			})
			err := c.do(t.Context(), client)
			assert.Equal(t, c.want, patch)
			if c.body == "" {
				require.ErrorIs(t, err, inventory.ErrBusy)
				assert.Empty(t, body)
				return
			}
			require.NoError(t, err)
			assert.JSONEq(t, c.body, body)
			assert.Equal(t, ask, s.requests[len(s.requests)-1])
			if c.own {
				assert.Len(t, s.requests, 2, "the version, and what is asked for")
			}
		})
	}
}

func TestANodeSaysWhatItsHostSaysOfTheMachine(t *testing.T) {
	const boots, network = `{"op":"add","path":"/properties/capabilities","value":"boot_mode:bios"}`, `{"op":"add","path":"/network_data","value":{"links":[]}}`
	s := newService(t, "1.82")
	var bodies []string
	takes := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		bodies = append(bodies, string(body))
		_, _ = w.Write([]byte(`{"uuid":"u"}`))
	}
	s.mux.HandleFunc("GET /v1/drivers/redfish", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"enabled_inspect_interfaces":["agent"]}`))
	})
	s.mux.HandleFunc("PATCH /v1/nodes/u", takes)
	s.mux.HandleFunc("POST /v1/nodes", takes)
	s.mux.HandleFunc("PUT /v1/nodes/u/states/provision", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	s.mux.HandleFunc("GET /v1/nodes/u", func(w http.ResponseWriter, r *http.Request) {
		assert.Contains(t, r.URL.Query().Get("fields"), "properties")
		assert.Contains(t, r.URL.Query().Get("fields"), "network_data")
		_, _ = w.Write([]byte(`{"uuid":"u","properties":{"capabilities":"boot_mode:bios"},"network_data":{"links":[]}}`))
	})
	client, ctx := s.client(t), t.Context()
	machine := hoststate.Machine{BootMode: "legacy", Network: map[string]any{"links": []any{}}}
	node := hoststate.Node{UUID: "u", Driver: "redfish", Inspector: "agent", Boot: "ipxe", State: "manageable"}
	access := hoststate.Access{Driver: "redfish", Machine: machine}
	_, err := client.EnrolNode(ctx, "n", access)
	require.NoError(t, err)
	assert.Contains(t, bodies[0], `"properties":{"capabilities":"boot_mode:bios"}`)
	assert.Contains(t, bodies[0], `"network_data":{"links":[]}`)
	require.NoError(t, client.Write(ctx, node, "n", access))
	require.NoError(t, client.Inspect(ctx, node, "", machine))
	require.NoError(t, client.Prepare(ctx, node, hoststate.Deployment{Machine: machine}))
	require.Len(t, bodies, 4)
	for _, body := range bodies[1:] {
		assert.Contains(t, body, boots)
		assert.Contains(t, body, network)
	}
	node, err = client.Managed(ctx, "u")
	require.NoError(t, err)
	node.Driver, node.Inspector, node.Boot = "redfish", "agent", "ipxe"
	require.NoError(t, client.Inspect(ctx, node, "", machine))
	assert.Len(t, bodies, 4, "nothing is written that the node says already")
}

func TestANodeBootsAsItsAddressSays(t *testing.T) {
	const media = `{"op":"add","path":"/boot_interface","value":"redfish-virtual-media"}`
	for name, c := range map[string]struct {
		address string
		node    hoststate.Node
		enabled string
		media   bool
		fails   error
	}{
		"as virtual media":                           {"redfish-virtualmedia://h", hoststate.Node{State: "enroll", Boot: "ipxe"}, `"ipxe","redfish-virtual-media"`, true, nil},
		"as virtual media of Dell's":                 {"idrac-virtualmedia://h", hoststate.Node{State: "manageable", Boot: "ipxe"}, `"redfish-virtual-media"`, true, nil},
		"as it does already":                         {"ilo5-virtualmedia://h", hoststate.Node{State: "available", Boot: "redfish-virtual-media"}, ``, false, nil},
		"from the network":                           {"redfish://h", hoststate.Node{State: "enroll", Boot: "ipxe"}, `"redfish-virtual-media"`, false, nil},
		"as an administrator says":                   {"redfish://h", hoststate.Node{State: "enroll", Boot: "redfish-virtual-media"}, `"ipxe"`, false, nil},
		"as it did where Ironic changes nothing":     {"redfish-virtualmedia://h", hoststate.Node{State: "active", Boot: "ipxe"}, `"redfish-virtual-media"`, false, nil},
		"not where Ironic cannot have it boot there": {"redfish-uefihttp://h", hoststate.Node{State: "enroll", Boot: "ipxe"}, `"ipxe"`, false, inventory.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, "1.96")
			s.mux.HandleFunc("GET /v1/drivers/", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"enabled_boot_interfaces":[%s]}`, c.enabled)
			})
			patch := ""
			s.mux.HandleFunc("PATCH /v1/nodes/u", func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				patch = string(body)
				_, _ = w.Write([]byte(`{}`))
			})
			a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: c.address}, "u", "p")
			require.NoError(t, err)
			c.node.UUID, c.node.Driver = "u", a.Driver
			require.ErrorIs(t, s.client(t).Write(t.Context(), c.node, "ns~h", a), c.fails)
			assert.Equal(t, c.media, strings.Contains(patch, media), patch)
			assert.Equal(t, c.media, strings.Contains(patch, "boot_interface"), patch)
		})
	}
}

func TestTheAuthoritiesOfAnAdministratorAreKept(t *testing.T) {
	s := newService(t, "1.96")
	var bodies []string
	s.mux.HandleFunc("/v1/nodes/u", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			bodies = append(bodies, string(body))
		}
		_, _ = w.Write([]byte(`{"uuid":"u","driver":"redfish","provision_state":"active","driver_info":{"redfish_address":"https://h","redfish_username":"old","redfish_verify_ca":"/certs/bmc.pem"}}`))
	})
	client := s.client(t)
	n, err := client.Managed(t.Context(), "u")
	require.NoError(t, err)
	a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: "redfish://h"}, "u", "p")
	require.NoError(t, err)
	require.NoError(t, client.Write(t.Context(), n, "ns~h", a))
	require.Len(t, bodies, 1)
	assert.Contains(t, bodies[0], "redfish_username")
	assert.NotContains(t, bodies[0], "redfish_verify_ca")
}

func TestANodeSaysWhoseItsMaintenanceIs(t *testing.T) {
	for reason, own := range map[string]bool{"": true, "disks are replaced": false} {
		s := newService(t, "1.96")
		s.mux.HandleFunc("PUT /v1/nodes/u/maintenance", func(w http.ResponseWriter, r *http.Request) {
			var body struct{ Reason string }
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
			reason = cmp.Or(reason, body.Reason)
			w.WriteHeader(http.StatusAccepted)
		})
		s.mux.HandleFunc("GET /v1/nodes/u", func(w http.ResponseWriter, r *http.Request) {
			assert.Contains(t, r.URL.Query().Get("fields"), "maintenance_reason")
			_, _ = fmt.Fprintf(w, `{"uuid":"u","maintenance":%t,"maintenance_reason":%q,"fault":"power failure"}`, reason != "", reason)
		})
		client := s.client(t)
		n, err := client.Managed(t.Context(), "u")
		require.NoError(t, err)
		assert.False(t, n.Leaving)
		assert.Equal(t, "power failure", n.Fault)
		require.NoError(t, client.BeginMaintenance(t.Context(), "u"))
		n, err = client.Managed(t.Context(), "u")
		require.NoError(t, err)
		assert.True(t, n.Maintenance)
		assert.Equal(t, own, n.Leaving)
	}
}

func TestTheDriverOfANodeInUseChangesInMaintenance(t *testing.T) {
	const ask, begin, change, end = "GET /v1/drivers/redfish", "PUT /v1/nodes/u/maintenance", "PATCH /v1/nodes/u?reset_interfaces=True", "DELETE /v1/nodes/u/maintenance"
	for name, c := range map[string]struct {
		node   hoststate.Node
		status int
		want   []string
		fails  error
	}{
		"a machine is deployed":              {hoststate.Node{State: "active"}, http.StatusOK, []string{ask, begin, change, end}, nil},
		"a deployment did not end":           {hoststate.Node{State: "error"}, http.StatusOK, []string{ask, begin, change, end}, nil},
		"an inspection failed":               {hoststate.Node{State: "inspect failed"}, http.StatusOK, []string{ask, begin, change, end}, nil},
		"Ironic does not have the driver":    {hoststate.Node{State: "active"}, http.StatusBadRequest, []string{ask, begin, change, end}, inventory.ErrRefused},
		"Ironic works on the node":           {hoststate.Node{State: "active"}, http.StatusConflict, []string{ask, begin, change, end}, inventory.ErrBusy},
		"an administrator is at the machine": {hoststate.Node{State: "active", Maintenance: true}, http.StatusOK, []string{ask, change}, nil},
		"nothing is deployed":                {hoststate.Node{State: "manageable"}, http.StatusOK, []string{ask, change}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, "1.96")
			maintained := c.node.Maintenance || c.node.State == "manageable"
			s.mux.HandleFunc("/v1/nodes/u/maintenance", func(w http.ResponseWriter, r *http.Request) {
				maintained = r.Method == http.MethodPut
				w.WriteHeader(http.StatusAccepted)
			})
			s.mux.HandleFunc("PATCH /v1/nodes/u", func(w http.ResponseWriter, _ *http.Request) {
				if !maintained {
					w.WriteHeader(http.StatusConflict)
				} else {
					w.WriteHeader(c.status)
				}
				_, _ = w.Write([]byte(`{}`))
			})
			s.mux.HandleFunc("GET /v1/drivers/", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"enabled_boot_interfaces":["redfish-virtual-media"]}`))
			})
			a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: "redfish-virtualmedia://h"}, "u", "p")
			require.NoError(t, err)
			c.node.UUID, c.node.Name, c.node.Driver = "u", "ns~h", "ipmi"
			require.ErrorIs(t, s.client(t).Write(t.Context(), c.node, "ns~h", a), c.fails)
			assert.Equal(t, c.want, s.requests[1:], "after the version was asked for")
			if a.Boot = nil; c.status == http.StatusOK {
				maintained, s.requests = true, nil // Ironic resets interfaces in every state
				require.NoError(t, s.client(t).Write(t.Context(), c.node, "ns~h", a))
				assert.Equal(t, []string{change}, s.requests[1:], "a driver that boots from the network needs no maintenance")
			}
		})
	}
}

func TestANodeGetsItsNameUnlessAnotherNodeHasIt(t *testing.T) {
	a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: "redfish://h"}, "u", "p")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		before, other string
		want          error
	}{
		"Ironic works on the node":          {want: inventory.ErrBusy},
		"another node has the name":         {other: "v", want: inventory.ErrRefused},
		"it was given it a moment ago":      {other: "u", want: inventory.ErrBusy},
		"it has the name, and is worked on": {before: "ns~h", other: "v", want: inventory.ErrBusy},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, "1.96")
			s.mux.HandleFunc("PATCH /v1/nodes/u", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusConflict)
				_, _ = w.Write([]byte(`{"error_message":"{\"faultstring\":\"A node with name ns~h already exists.\"}"}`))
			})
			if c.other != "" {
				s.mux.HandleFunc("GET /v1/nodes/ns~h", func(w http.ResponseWriter, _ *http.Request) {
					_, _ = fmt.Fprintf(w, `{"uuid":%q,"name":"ns~h"}`, c.other)
				})
			}
			err := s.client(t).Write(t.Context(), hoststate.Node{UUID: "u", Name: c.before, Driver: "redfish", State: "enroll"}, "ns~h", a)
			require.ErrorIs(t, err, c.want)
			if errors.Is(c.want, inventory.ErrRefused) {
				require.ErrorContains(t, err, "node v")
			}
		})
	}
}

func TestAMachineThatCannotBeAskedToShutDownIsSwitchedOff(t *testing.T) {
	for target, want := range map[string][]string{
		hoststate.SoftDown:    {hoststate.SoftDown, hoststate.PowerDown},
		hoststate.SoftRestart: {hoststate.SoftRestart, hoststate.Rebooting},
		hoststate.PowerOn:     {hoststate.PowerOn},
	} {
		s := newService(t, "1.96")
		var asked []string
		s.mux.HandleFunc("PUT /v1/nodes/u/states/power", func(w http.ResponseWriter, r *http.Request) {
			var body struct{ Target string }
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&body))
			asked = append(asked, body.Target)
			if body.Target == target {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"error_message":"{\"faultstring\":\"Driver redfish does not support it (disabled or not implemented).\"}"}`))
				return
			}
			w.WriteHeader(http.StatusAccepted)
		})
		err := s.client(t).SetPower(t.Context(), "u", target)
		assert.Equal(t, want, asked)
		if len(want) > 1 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, inventory.ErrRefused)
		}
	}
}

func TestIronicIsToldToSwitchNoMachineOff(t *testing.T) {
	a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: "redfish://h"}, "u", "p")
	require.NoError(t, err)
	a.KeepOn = true
	for version, able := range map[string]bool{"1.96": true, "1.94": false} {
		s := newService(t, version)
		var bodies []string
		s.mux.HandleFunc("/v1/nodes/u", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				bodies = append(bodies, string(body))
			} else {
				assert.Equal(t, able, strings.Contains(r.URL.Query().Get("fields"), "disable_power_off"))
			}
			_, _ = w.Write([]byte(map[bool]string{true: `{"uuid":"u","disable_power_off":false}`, false: `{"uuid":"u"}`}[able]))
		})
		s.mux.HandleFunc("POST /v1/nodes", func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			bodies = append(bodies, string(body))
			_, _ = w.Write([]byte(`{"uuid":"u"}`))
		})
		client, ctx := s.client(t), t.Context()
		n, err := client.Managed(ctx, "u")
		require.NoError(t, err)
		assert.Equal(t, able, n.KeepOn != nil)
		n.Driver = "redfish"
		_, enrolled := client.EnrolNode(ctx, "ns~h", a)
		written := client.Write(ctx, n, "ns~h", a)
		if !able {
			require.ErrorIs(t, enrolled, inventory.ErrRefused)
			require.ErrorIs(t, written, inventory.ErrRefused)
			require.ErrorContains(t, written, "spec.disablePowerOff")
			assert.Empty(t, bodies)
			n.Name = "ns~h"
			require.NoError(t, client.Write(ctx, n, "ns~h", a), "a host that is registered gets its new password")
			require.Len(t, bodies, 1)
			assert.Contains(t, bodies[0], "redfish_password")
			assert.NotContains(t, bodies[0], "disable_power_off")
			continue
		}
		require.NoError(t, enrolled)
		require.NoError(t, written)
		require.Len(t, bodies, 2)
		assert.Contains(t, bodies[0], `"disable_power_off":true`)
		assert.Contains(t, bodies[1], `{"op":"add","path":"/disable_power_off","value":true}`)
		n.KeepOn = new(true)
		require.NoError(t, client.Write(ctx, n, "ns~h", a))
		assert.NotContains(t, bodies[2], "disable_power_off")
	}
}

// TestAnIronicThatIsUpgradedIsAskedInItsNewVersion upgrades one that answers all the while.
func TestAnIronicThatIsUpgradedIsAskedInItsNewVersion(t *testing.T) {
	s := newService(t, "1.81")
	asked := ""
	s.mux.HandleFunc("GET /v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("X-OpenStack-Ironic-API-Version")
		_, _ = w.Write([]byte(`{"nodes":[]}`))
	})
	client := s.client(t)
	ask := func(version string, times int) {
		s.version = version
		for range times {
			require.NoError(t, client.Enter(t.Context()))
		}
	}
	ask("1.81", 1)
	assert.Equal(t, "1.81", asked)
	for range 30 {
		ask("1.99", 1)
		ask("1.81", 1)
	}
	assert.Equal(t, "1.81", asked, "not all of its replicas speak the new version yet")
	ask("1.99", 30)
	assert.Equal(t, "1.96", asked)
	requests := len(s.requests)
	ask("1.99", 30)
	assert.Len(t, s.requests, requests+30, "the version is asked for once")
	version, err := client.Version(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "1.96", version)
}

// TestAnOldIronicIsNotAskedForNetworkData has an Ironic with ironic-inspector beside it, which says 406 about a field that its version does not have.
func TestAnOldIronicIsNotAskedForNetworkData(t *testing.T) {
	a, err := hoststate.AccessTo(metal3v1.BMCDetails{Address: "redfish://h"}, "u", "p")
	require.NoError(t, err)
	for version, able := range map[string]bool{"1.66": true, "1.65": false} {
		s := newService(t, version)
		changes := 0
		s.mux.HandleFunc("/v1/nodes/u", func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				changes++
			} else {
				assert.Equal(t, able, strings.Contains(r.URL.Query().Get("fields"), "network_data"))
			}
			_, _ = w.Write([]byte(`{"uuid":"u","driver":"redfish"}`))
		})
		client := s.client(t, func(c *ironic.Config) { c.InspectorEndpoint = s.URL })
		n, err := client.Managed(t.Context(), "u")
		require.NoError(t, err)
		require.NoError(t, client.Write(t.Context(), n, "ns~h", a))
		networked := a
		networked.Machine.Network = map[string]any{"links": []any{}}
		err = client.Write(t.Context(), n, "ns~h", networked)
		if able {
			require.NoError(t, err)
			assert.Equal(t, 2, changes)
			continue
		}
		require.ErrorIs(t, err, inventory.ErrRefused)
		require.ErrorContains(t, err, "spec.preprovisioningNetworkDataName")
		assert.Equal(t, 1, changes)
	}
}

func TestAnEmptyConfigDriveIsNotAttached(t *testing.T) {
	s := newService(t, "1.96")
	var bodies []string
	s.mux.HandleFunc("PUT /v1/nodes/u/states/provision", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		bodies = append(bodies, string(body))
		w.WriteHeader(http.StatusAccepted)
	})
	require.NoError(t, s.client(t).Deploy(t.Context(), "u", osimage.ConfigDrive{}))
	require.NoError(t, s.client(t).Deploy(t.Context(), "u", osimage.ConfigDrive{MetaData: map[string]any{"uuid": "h"}}))
	assert.Equal(t, []string{`{"target":"active"}`, `{"configdrive":{"meta_data":{"uuid":"h"}},"target":"active"}`}, bodies)
}

func TestANodeThatIsItsOwnParentCanBeSwitched(t *testing.T) {
	const untie = `[{"op":"remove","path":"/parent_node"},{"op":"add","path":"/driver_info/has_dedicated_power_supply","value":true}]`
	for name, c := range map[string]struct {
		node    string
		version string
		status  int
		do      func(ctx context.Context, client *ironic.Client) (locked bool, err error)
		want    []string
		locked  bool
		fails   error
	}{
		"after a change":                  {node: `"parent_node":"u"`, do: clean, want: []string{`[{"op":"add","path":"/automated_clean","value":true}]`, untie}},
		"when it is read":                 {node: `"parent_node":"u"`, do: read, want: []string{untie}},
		"not while Ironic works on it":    {node: `"parent_node":"u","reservation":"c"`, do: read, locked: true},
		"not when Ironic has begun since": {node: `"parent_node":"u"`, status: http.StatusConflict, do: read, want: []string{untie}, locked: true},
		"a refusal is told":               {node: `"parent_node":"u"`, status: http.StatusBadRequest, do: read, want: []string{untie}, fails: inventory.ErrRefused},
		"once":                            {node: `"parent_node":"u","driver_info":{"has_dedicated_power_supply":true}`, do: read},
		"a child of another node is left": {node: `"parent_node":"v"`, do: read},
		"a node without parent is left":   {node: `"parent_node":null`, do: read},
		"an Ironic that knows no parents": {node: `"name":"n"`, version: "1.82", do: read},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, cmp.Or(c.version, "1.96"))
			var patches []string
			s.mux.HandleFunc("/v1/nodes/u", func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					assert.Equal(t, c.version == "", strings.Contains(r.URL.Query().Get("fields"), "parent_node"))
				} else {
					body, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					patches = append(patches, string(body))
					w.WriteHeader(cmp.Or(c.status, http.StatusOK))
				}
				_, _ = fmt.Fprintf(w, `{"uuid":"u",%s}`, c.node)
			})
			locked, err := c.do(t.Context(), s.client(t))
			require.ErrorIs(t, err, c.fails)
			assert.Equal(t, c.want, patches)
			assert.Equal(t, c.locked, locked)
		})
	}
}

func TestAStateOfPowerThatCannotBeAskedForIsUnknown(t *testing.T) {
	for state, want := range map[string]string{`"power on"`: hoststate.PowerOn, `"power off"`: hoststate.PowerDown, `"error"`: "", `null`: ""} {
		s := newService(t, "1.96")
		s.mux.HandleFunc("/v1/nodes/u", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"uuid":"u","power_state":%s}`, state)
		})
		n, err := s.client(t).Managed(t.Context(), "u")
		require.NoError(t, err)
		assert.Equal(t, want, n.Power)
	}
}

func TestIronicTimesNoNodeOutThatIsItsOwnParent(t *testing.T) {
	for parent, untimed := range map[string]bool{`"u"`: true, `"v"`: false, `null`: false} {
		s := newService(t, "1.96")
		s.mux.HandleFunc("/v1/nodes/u", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"uuid":"u","parent_node":%s,"driver_info":{"has_dedicated_power_supply":true},"provision_updated_at":"2026-11-26T12:00:00+00:00"}`, parent)
		})
		n, err := s.client(t).Managed(t.Context(), "u")
		require.NoError(t, err)
		assert.Equal(t, untimed, n.Untimed, parent)
		assert.Equal(t, "2026-11-26T12:00:00+00:00", n.Touched, "from which the operator counts, as Ironic would")
	}
}

func clean(ctx context.Context, client *ironic.Client) (locked bool, err error) {
	return false, client.SetCleaning(ctx, "u", true)
}

func read(ctx context.Context, client *ironic.Client) (locked bool, err error) {
	n, err := client.Managed(ctx, "u")
	return n.Locked, err
}
