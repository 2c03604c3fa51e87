// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/pki"
)

// machine listens at an address of the loopback network until it is closed.
func machine(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// probed runs the inventory of addresses that answer at a port, and returns its URL.
func (w *site) probed(token string, port int, subnet string) string {
	w.t.Helper()
	o, ports, err := parseProbe([]string{
		"--token-file", token, "--subnet", w.namespace + "/p=" + subnet, "--ports", strconv.Itoa(port),
		"--echo=false", "--count-refused=false", "--rate=1000", "--interval=50ms", "--keep=0", "--timeout=1m",
	}, io.Discard)
	require.NoError(w.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.run(ctx, listener, ports, logr.Discard()) }()
	w.t.Cleanup(func() {
		cancel()
		assert.NoError(w.t, <-done)
	})
	return "http://" + listener.Addr().String()
}

// TestAddressesThatAnswerAreTaken lets machines that no claim knows have addresses of a pool: claims get the others, and an address whose machine is gone. What answers at an
// address that a claim has is its machine.
func TestAddressesThatAnswerAreTaken(t *testing.T) {
	w := newTestEnv(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(inventoryToken), 0o600))
	first := machine(t, "127.0.77.1:0")
	_, port, err := net.SplitHostPort(first.Addr().String())
	require.NoError(t, err)
	machine(t, "127.0.77.3:"+port)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	options := testOptions(w.namespace)
	options.InventoryURL, options.InventoryTokenFile, options.InventoryInterval = w.probed(token, number, "127.0.77.0/29"), token, time.Second
	require.NoError(t, options.Validate())
	taken := func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, options.InventoryURL+"/v1/taken?pool=p&namespace="+w.namespace, nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+inventoryToken)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		var body struct {
			Addresses []string `json:"addresses"`
		}
		if answer.StatusCode == http.StatusOK {
			require.NoError(t, json.NewDecoder(answer.Body).Decode(&body))
		}
		return strings.Join(body.Addresses, " ")
	}
	w.eventually("the addresses do not answer", func() bool { return taken() == "127.0.77.1 127.0.77.3" })
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("127.0.77.1", "127.0.77.4")} })
	w.operatorWith(options, nil)
	for _, name := range []string{"a", "b"} {
		w.claim(name, "p")
		assert.Contains(t, []string{"127.0.77.2", "127.0.77.4"}, string(w.address(name).Spec.Address))
	}
	w.claim("waits", "p")
	w.refused("waits", "Exhausted IP Pools")
	w.eventually("the pool does not count what answers", func() bool {
		external := w.getPool("p").Status.External
		return external != nil && *external == 2
	})

	require.NoError(t, first.Close())
	assert.Equal(t, "127.0.77.1", string(w.address("waits").Spec.Address), "the address of a machine that is gone is free")
	machine(t, "127.0.77.1:"+port)
	third := w.claim("next", "p")
	w.refused("next", "Exhausted IP Pools")
	w.eventually("the machine of a claim counts as a stranger", func() bool { return taken() == "127.0.77.3" })

	w.delete(w.getClaim("waits"))
	w.eventually("the machine of a claim that is gone does not count", func() bool { return taken() == "127.0.77.1 127.0.77.3" || w.hasAddress(third.Name) })
	w.delete(third)
	w.settled()
}

func (w *site) hasAddress(claim string) bool {
	got := w.getClaim(claim)
	return got != nil && got.Status.Address != nil
}

func TestProbeServesARenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	o := probeOptions{certFile: filepath.Join(dir, "tls.crt"), keyFile: filepath.Join(dir, "tls.key")}
	valid := pki.Period{From: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}
	issue := func() *x509.CertPool {
		made, err := pki.NewSelfSigned([]string{"127.0.0.1"}, valid)
		require.NoError(t, err)
		certificate, key, err := made.Encode()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(o.certFile, certificate, 0o600))
		require.NoError(t, os.WriteFile(o.keyFile, key, 0o600))
		roots := x509.NewCertPool()
		roots.AddCert(made.Certificate)
		return roots
	}
	roots := issue()
	listener := machine(t, "127.0.0.1:0")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.serve(ctx, listener, http.NotFoundHandler(), logr.Discard()) }()
	served := func(roots *x509.CertPool) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			connection, err := (&tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}).DialContext(t.Context(), "tcp", listener.Addr().String())
			require.NoError(c, err)
			require.NoError(c, connection.Close())
		}, 10*time.Second, 10*time.Millisecond)
	}
	served(roots)
	served(issue())
	stop()
	require.NoError(t, <-done)
}

func TestProbeRefusesWhatItCannotUse(t *testing.T) {
	for says, arguments := range map[string][]string{
		"write the subnets to probe":                     nil,
		"write subnets of /20 or longer":                 {"--subnet", "10.0.0.0/8"},
		"--ports=ssh: write numbers such as 22,443":      {"--subnet", "10.0.0.0/24", "--ports", "ssh"},
		"--ports: write 1 to 16 ports, or none and":      {"--subnet", "10.0.0.0/24", "--ports", "", "--echo=false"},
		"--rate, --parallel: write 1 to 1000":            {"--subnet", "10.0.0.0/24", "--rate", "0"},
		"--tls-cert-file, --tls-key-file: write both or": {"--subnet", "10.0.0.0/24", "--tls-cert-file", "x"},
		`unexpected argument "now"`:                      {"--subnet", "10.0.0.0/24", "now"},
	} {
		var problems strings.Builder
		run, ok := Command([]string{"probe"})
		require.True(t, ok)
		assert.Equal(t, 2, run(t.Context(), arguments, io.Discard, &problems))
		assert.Contains(t, problems.String(), says)
	}
}
