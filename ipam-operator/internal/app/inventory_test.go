// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// inventoryToken may stand in no object and no log.
const inventoryToken = "c2VjcmV0LXRva2Vu"

// stock is an inventory as docs/inventory.md says.
type stock struct {
	mu    sync.Mutex
	taken []string
	given map[string]string // body by path
	fails int               // how many requests fail
	ended chan struct{}     // unless nil, no question is answered before it is closed
}

// ServeHTTP implements http.Handler.
func (s *stock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.ended != nil {
		select {
		case <-s.ended:
		case <-r.Context().Done():
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 || r.Header.Get("Authorization") != "Bearer "+inventoryToken {
		s.fails--
		http.Error(w, "no such token: "+r.Header.Get("Authorization"), http.StatusServiceUnavailable)
		return
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/v1/taken" && r.URL.Query().Get("pool") == "p":
		_ = json.NewEncoder(w).Encode(map[string]any{"addresses": append([]string{}, s.taken...)})
	case r.Method == http.MethodGet && r.URL.Path == "/v1/taken":
		_, _ = w.Write([]byte(`{"addresses":[]}`))
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err == nil {
			s.given[r.URL.Path] = string(body)
		}
	case r.Method == http.MethodDelete:
		delete(s.given, r.URL.Path)
	default:
		_, _ = w.Write([]byte("{}"))
	}
}

func (s *stock) has(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given[path]
}

// followed runs an operator with an inventory.
func (w *site) followed(s *stock) {
	w.t.Helper()
	w.followedBy(testOptions(w.namespace), s)
}

// followedBy runs an operator with options and an inventory.
func (w *site) followedBy(options Options, s *stock) {
	w.t.Helper()
	server := httptest.NewServer(s)
	w.t.Cleanup(server.Close)
	token := filepath.Join(w.t.TempDir(), "token")
	require.NoError(w.t, os.WriteFile(token, []byte(inventoryToken+"\n"), 0o600))
	options.InventoryURL, options.InventoryTokenFile, options.InventoryInterval = server.URL, token, time.Second
	require.NoError(w.t, options.Validate())
	w.operatorWith(options, nil)
}

func TestAnInventoryReportsTakenAddressesAndIsNotifiedOfGivenOnes(t *testing.T) {
	w := newTestEnv(t)
	s := &stock{taken: []string{"10.0.0.1", "10.0.0.2/31"}, given: map[string]string{}, fails: 3}
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.4")} })
	w.claim("a", "p")
	w.followed(s)
	assert.Equal(t, "10.0.0.4", string(w.address("a").Spec.Address))
	path := "/v1/given/" + w.namespace + "/p-10-0-0-4"
	w.eventually("the inventory does not hear of the address", func() bool { return s.has(path) != "" })
	assert.JSONEq(t, `{"address":"10.0.0.4","pool":"p","claim":{"kind":"IPClaim","namespace":"`+w.namespace+`","name":"a"}}`, s.has(path))
	w.eventually("the pool does not count what others have", func() bool {
		status := w.getPool("p").Status
		return status.External != nil && *status.External == 3 && *status.Used == 1 && *status.Free == 0
	})
	w.claim("waits", "p")
	w.refused("waits", "Exhausted IP Pools")
	s.mu.Lock()
	s.taken = []string{"10.0.0.1", "10.0.0.3"}
	s.mu.Unlock()
	assert.Equal(t, "10.0.0.2", string(w.address("waits").Spec.Address), "an address that is free again wakes a claim")
	w.eventually("the pool counts what others had", func() bool {
		status := w.getPool("p").Status
		return status.External != nil && *status.External == 2 && *status.Used == 2
	})
	w.delete(w.getClaim("a"))
	w.eventually("the inventory does not hear that the address is free", func() bool { return s.has(path) == "" })
	w.settled()
	for _, list := range []client.ObjectList{&ipamv1.IPClaimList{}, &ipamv1.IPPoolList{}, &ipamv1.IPAddressList{}, &eventsv1.EventList{}} {
		require.NoError(t, w.user.List(t.Context(), list, client.InNamespace(w.namespace)))
		content, err := json.Marshal(list)
		require.NoError(t, err)
		assert.NotContains(t, string(content), inventoryToken)
	}
}

// TestAClaimGetsTheAddressThatItAsksForWhenOthersHaveItNoMore has claims that no other address helps.
func TestAClaimGetsTheAddressThatItAsksForWhenOthersHaveItNoMore(t *testing.T) {
	w := newTestEnv(t)
	s := &stock{taken: []string{"10.0.0.5", "10.0.0.8/30"}, given: map[string]string{}}
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.19")}
		s.PreAllocations = map[string]ipamv1.IPAddressStr{"reserved": "10.0.0.9"}
	})
	w.followed(s)
	asking := func(name, ip string) {
		claim := w.newClaim(name, "p")
		claim.Annotations = map[string]string{ipamv1.RequestedAddressAnnotation: ip}
		require.NoError(t, w.user.Create(t.Context(), claim))
		w.refused(name, "Requested IP not available")
	}
	asking("asks", "10.0.0.5")
	asking("asks-of-network", "10.0.0.10")
	w.claim("reserved", "p")
	w.refused("reserved", "Requested IP not available")
	give := func(taken ...string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken = taken
	}
	give("10.0.0.8/30")
	assert.Equal(t, "10.0.0.5", string(w.address("asks").Spec.Address))
	give()
	assert.Equal(t, "10.0.0.10", string(w.address("asks-of-network").Spec.Address))
	assert.Equal(t, "10.0.0.9", string(w.address("reserved").Spec.Address))
	w.settled()
}

// TestAnInventoryThatHangsBlocksNoClaim has an inventory that never answers.
func TestAnInventoryThatHangsBlocksNoClaim(t *testing.T) {
	w := newTestEnv(t)
	s := &stock{ended: make(chan struct{})}
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.4")} })
	w.claim("a", "p")
	w.followed(s)
	t.Cleanup(func() { close(s.ended) }) // the server waits for its requests
	assert.Equal(t, "10.0.0.1", string(w.address("a").Spec.Address))
	w.delete(w.getClaim("a"))
	w.claim("b", "p")
	w.address("b")
}

// TestAnInventoryHearsOfSelectedAddressesOnly has an operator with a watch filter, and an address of a claim that another instance serves.
func TestAnInventoryHearsOfSelectedAddressesOnly(t *testing.T) {
	w := newTestEnv(t)
	s := &stock{given: map[string]string{}}
	w.followedBy(w.allOptions(), s)
	w.sharedPool("p", func(*ipamv1.IPPool) {})
	theirs := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p-10-0-0-19"}}
	theirs.Spec = ipamv1.IPAddressSpec{Address: "10.0.0.19", Pool: ipamv1.ObjectReference{Name: "p"}, Claim: ipamv1.ObjectReference{Name: "theirs"}}
	require.NoError(t, w.user.Create(t.Context(), theirs))
	ours := w.served(w.claimIn(w.namespace, "ours", "p"))
	path := func(a *ipamv1.IPAddress) string { return "/v1/given/" + w.namespace + "/" + a.Name }
	w.eventually("the inventory does not hear of the address", func() bool { return s.has(path(ours)) != "" })
	assert.Empty(t, s.has(path(theirs)))

	s.mu.Lock()
	s.given[path(theirs)] = "another instance reported it"
	s.mu.Unlock()
	w.delete(theirs)
	w.delete(w.getClaim("ours"))
	w.eventually("the inventory does not hear that the address is free", func() bool { return s.has(path(ours)) == "" })
	assert.NotEmpty(t, s.has(path(theirs)))
}
