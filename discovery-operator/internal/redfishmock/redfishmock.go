// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redfishmock is a management controller on loopback for tests: it speaks as much Redfish as Ironic asks for, checks
// credentials, and records the requests.
package redfishmock

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// System is the path of the one system.
const System = "/redfish/v1/Systems/1"

// BMC is a management controller of one machine.
type BMC struct {
	server *httptest.Server

	mu       sync.Mutex
	username string
	password string
	power    string
	resets   []string
	accepted int
	refused  int
}

// Start starts a management controller that ends with the test. Its machine is off.
func Start(t testing.TB, username, password string) *BMC {
	t.Helper()
	b := &BMC{username: username, password: password, power: "Off"}
	b.server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.server.Close)
	return b
}

// Address is what a user writes into spec.bmc.address.
func (b *BMC) Address() string {
	return "redfish+http://" + strings.TrimPrefix(b.server.URL, "http://") + System
}

// Power is On or Off.
func (b *BMC) Power() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.power
}

// Resets are the requested resets, in order.
func (b *BMC) Resets() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.resets...)
}

// Asked is how many requests came with the right credentials, and how many with wrong ones.
func (b *BMC) Asked() (accepted, refused int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.accepted, b.refused
}

func (b *BMC) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	path := strings.TrimRight(r.URL.Path, "/")
	switch {
	case path == "/redfish" || path == "/redfish/v1": // the root needs no credentials
		answer(w, b.resource(path))
	case !b.allowed(r):
		b.refused++
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		answer(w, map[string]any{"error": map[string]any{"code": "Base.1.0.InsufficientPrivilege", "message": "the credentials are refused"}})
	default:
		b.accepted++
		b.authenticated(w, r, path)
	}
}

func (b *BMC) allowed(r *http.Request) bool {
	username, password, ok := r.BasicAuth()
	return ok && username == b.username && password == b.password
}

func (b *BMC) authenticated(w http.ResponseWriter, r *http.Request, path string) {
	switch {
	case r.Method == http.MethodPost && path == System+"/Actions/ComputerSystem.Reset":
		var reset struct{ ResetType string }
		if json.NewDecoder(r.Body).Decode(&reset) != nil {
			http.Error(w, "{}", http.StatusBadRequest)
			return
		}
		b.resets = append(b.resets, reset.ResetType)
		switch reset.ResetType {
		case "ForceOff", "GracefulShutdown", "PushPowerButton":
			b.power = "Off"
		default:
			b.power = "On"
		}
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPatch:
		w.WriteHeader(http.StatusNoContent)
	case b.resource(path) != nil:
		answer(w, b.resource(path))
	default:
		http.Error(w, "{}", http.StatusNotFound)
	}
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(fmt.Sprintf("the body above is JSON: %v", err))
	}
}

func ref(path string) map[string]any { return map[string]any{"@odata.id": path} }

func collection(path, of string, members ...any) map[string]any {
	return map[string]any{
		"@odata.id": path, "@odata.type": "#" + of + "." + of, "Name": of, "Members@odata.count": len(members), "Members": members,
	}
}

// resource is what a path answers, nil for none. There is no session service, so that each request carries its credentials.
func (b *BMC) resource(path string) map[string]any {
	switch path {
	case "/redfish":
		return map[string]any{"v1": "/redfish/v1/"}
	case "/redfish/v1":
		return map[string]any{
			"@odata.id": "/redfish/v1", "@odata.type": "#ServiceRoot.v1_0_2.ServiceRoot", "Id": "RootService", "Name": "Root Service",
			"RedfishVersion": "1.0.2", "UUID": "92384634-2938-2342-8820-489239905423",
			"Systems": ref("/redfish/v1/Systems"), "Managers": ref("/redfish/v1/Managers"),
		}
	case "/redfish/v1/Systems":
		return collection(path, "ComputerSystemCollection", ref(System))
	case "/redfish/v1/Managers":
		return collection(path, "ManagerCollection", ref("/redfish/v1/Managers/1"))
	case "/redfish/v1/Managers/1":
		return map[string]any{
			"@odata.id": path, "@odata.type": "#Manager.v1_0_0.Manager", "Id": "1", "Name": "Manager", "ManagerType": "BMC",
			"Status": map[string]any{"State": "Enabled", "Health": "OK"},
		}
	case System:
		return map[string]any{
			"@odata.id": System, "@odata.type": "#ComputerSystem.v1_1_0.ComputerSystem", "Id": "1", "Name": "Server",
			"Manufacturer": "Example Corp", "UUID": "38947555-7742-3448-3784-823347823834", "PowerState": b.power,
			"SystemType": "Physical", "Status": map[string]any{"State": "Enabled", "Health": "OK"},
			"Boot": map[string]any{
				"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None", "BootSourceOverrideMode": "UEFI",
				"BootSourceOverrideTarget@Redfish.AllowableValues": []string{"Pxe", "Hdd", "Cd"},
			},
			"Links": map[string]any{"ManagedBy": []any{ref("/redfish/v1/Managers/1")}},
			"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
				"target": System + "/Actions/ComputerSystem.Reset",
				"ResetType@Redfish.AllowableValues": []string{
					"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn",
				},
			}},
		}
	}
	return nil
}
