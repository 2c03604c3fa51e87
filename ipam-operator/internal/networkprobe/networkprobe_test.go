// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package networkprobe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

func subnets(t *testing.T, texts ...string) Subnets {
	t.Helper()
	var out Subnets
	for _, text := range texts {
		require.NoError(t, out.Set(text))
	}
	return out
}

func TestSubnets(t *testing.T) {
	s := subnets(t, "10.0.0.5/30", "metal/lan=fd00::/126")
	assert.Equal(t, "10.0.0.4/30,metal/lan=fd00::/126", s.String())
	require.NoError(t, s.Validate())
	for text, says := range map[string]string{
		"10.0.0.0/19":       "10.0.0.0/19 has too many addresses: write subnets of /20 or longer",
		"fd00::/64":         "fd00::/64 has too many addresses: write subnets of /116 or longer",
		"10.0.0.1":          "10.0.0.1: write a subnet such as 10.0.0.0/24",
		"lan=10.0.0.0/24":   "lan=10.0.0.0/24: write namespace/pool=10.0.0.0/24",
		"metal/=10.0.0.0/8": "metal/=10.0.0.0/8: write namespace/pool=10.0.0.0/24",
	} {
		require.EqualError(t, new(Subnets).Set(text), says)
	}
	require.EqualError(t, Subnets{}.Validate(), "write the subnets to probe: --subnet 10.0.0.0/24")
	var many Subnets
	for i := range 17 {
		many = append(many, Subnet{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 20)})
	}
	require.ErrorContains(t, many.Validate(), "write at most 65536")
}

func TestAddresses(t *testing.T) {
	for name, test := range map[string]struct{ given, want []string }{
		"without network and broadcast": {[]string{"10.0.0.0/30"}, []string{"10.0.0.1", "10.0.0.2"}},
		"each once":                     {[]string{"10.0.0.0/30", "metal/lan=10.0.0.2/32"}, []string{"10.0.0.1", "10.0.0.2"}},
		"a link of two":                 {[]string{"10.0.0.0/31"}, []string{"10.0.0.0", "10.0.0.1"}},
		"IPv6 has no broadcast":         {[]string{"fd00::/126"}, []string{"fd00::", "fd00::1", "fd00::2", "fd00::3"}},
		"up to the last address":        {[]string{"255.255.255.254/31"}, []string{"255.255.255.254", "255.255.255.255"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, addr := range subnets(t, test.given...).addresses() {
				got = append(got, addr.String())
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestKnown(t *testing.T) {
	var (
		now        = time.Unix(1000, 0)
		lan, other = types.NamespacedName{Namespace: "metal", Name: "lan"}, types.NamespacedName{Namespace: "metal", Name: "other"}
		one, two   = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.1")
		name       = types.NamespacedName{Namespace: "metal", Name: "lan-10-0-0-1"}
	)
	known := NewKnown(subnets(t, "10.0.0.0/30", "metal/other=10.0.1.0/30"), time.Minute)
	known.answer(one, now)
	known.answer(two, now)
	_, complete := known.Taken(lan)
	assert.False(t, complete)
	known.endRound(now, now)
	taken := func(pool types.NamespacedName) []netip.Addr {
		out, complete := known.Taken(pool)
		assert.True(t, complete)
		return out
	}
	assert.Equal(t, []netip.Addr{one}, taken(lan))
	assert.Equal(t, []netip.Addr{one, two}, taken(other), "a subnet of no pool is one of all pools")

	assert.True(t, known.Give(name, netip.PrefixFrom(one, 32)))
	assert.Empty(t, taken(lan), "what the operator has given is left out")
	known.answer(one, now)
	assert.Empty(t, taken(lan))
	assert.NotContains(t, known.toProbe(), one)
	known.Free(name)
	assert.Empty(t, taken(lan), "it is taken once it answers")
	known.answer(one, now)
	assert.Equal(t, []netip.Addr{one}, taken(lan))
	known.endRound(now, now.Add(time.Minute+1))
	assert.Equal(t, []netip.Addr{one}, taken(lan), "an address that answered in the round stays taken, however long the round was")
	known.endRound(now.Add(1), now.Add(time.Minute))
	assert.Equal(t, []netip.Addr{one}, taken(lan), "an address that is silent for a moment stays taken")
	known.endRound(now.Add(1), now.Add(time.Minute+1))
	assert.Empty(t, taken(lan))

	known.answer(one, now)
	assert.True(t, known.Give(name, netip.MustParsePrefix("10.0.0.0/31")))
	assert.Empty(t, taken(lan), "the addresses of a prefix are left out")
	assert.True(t, known.Give(name, netip.MustParsePrefix("192.168.0.1/32")))
	assert.Empty(t, known.given, "what is not probed need not be known")
}

// A round probes every address, no more at once than permitted.
func TestARound(t *testing.T) {
	const parallel = 3
	known := NewKnown(subnets(t, "10.0.0.0/28"), time.Hour)
	var mu sync.Mutex
	busy, most := 0, 0
	start := make(chan struct{})
	prober := &Prober{Known: known, Rate: 1000, Parallel: parallel, Clock: clock.RealClock{}, Log: logr.Discard(), Answers: func(_ context.Context, addr netip.Addr) bool {
		mu.Lock()
		busy++
		most = max(most, busy)
		if busy == parallel {
			select {
			case <-start:
			default:
				close(start)
			}
		}
		mu.Unlock()
		<-start
		mu.Lock()
		defer mu.Unlock()
		busy--
		return addr.As4()[3]%2 == 0
	}}
	prober.round(t.Context())
	got, complete := known.Taken(types.NamespacedName{})
	assert.True(t, complete)
	assert.Len(t, got, 7)
	assert.Equal(t, parallel, most)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	aborted := &Prober{Known: NewKnown(known.subnets, time.Hour), Rate: 1, Parallel: 1, Clock: clock.RealClock{}, Log: logr.Discard()}
	aborted.Run(ctx)
	_, complete = aborted.Known.Taken(types.NamespacedName{})
	assert.False(t, complete, "a round that was cut off says nothing")
}

func TestTCPAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.81.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	listens, refuses := netip.MustParseAddr("127.0.81.1"), netip.MustParseAddr("127.0.81.2")
	tcp := TCP{Ports: []int{1, port}, Timeout: time.Minute, CountRefused: true}
	assert.True(t, tcp.Answers(t.Context(), listens))
	assert.True(t, tcp.Answers(t.Context(), refuses))
	tcp.CountRefused = false
	assert.True(t, tcp.Answers(t.Context(), listens))
	assert.False(t, tcp.Answers(t.Context(), refuses))
	for err, want := range map[error]bool{
		syscall.ECONNREFUSED: true, syscall.ECONNRESET: true, syscall.EHOSTUNREACH: false, syscall.ENETUNREACH: false, context.DeadlineExceeded: false, errors.New("other"): false,
	} {
		assert.Equal(t, want, isRefused(&net.OpError{Op: "dial", Err: err}), err)
	}
}

func TestEchoAnswers(t *testing.T) {
	echo, err := NewEcho(time.Minute)
	if err != nil {
		t.Skip("the system permits no echo requests without privileges: ", err)
	}
	defer echo.Close()
	var group sync.WaitGroup
	for _, text := range []string{"127.0.82.1", "127.0.82.2", "127.0.82.3"} {
		group.Go(func() { assert.True(t, echo.Answers(t.Context(), netip.MustParseAddr(text)), text) })
	}
	group.Wait()
	assert.Empty(t, echo.waits)
	echo.Timeout = time.Nanosecond
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, echo.Answers(ctx, netip.MustParseAddr("192.0.2.1")))
}

func TestServer(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	known := NewKnown(subnets(t, "10.0.0.0/30"), time.Hour)
	server := httptest.NewServer(NewServer(known, token).Handler())
	defer server.Close()
	ask := func(method, path, body, token string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		var content strings.Builder
		_, err = io.Copy(&content, answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, strings.TrimSpace(content.String())
	}
	const given, taken = "/v1/given/metal/lan-10-0-0-1", "/v1/taken?namespace=metal&pool=lan"
	code, _ := ask("GET", taken, "", "secret")
	assert.Equal(t, http.StatusServiceUnavailable, code, "before the first round is complete")
	known.answer(netip.MustParseAddr("10.0.0.1"), time.Unix(0, 0))
	known.endRound(time.Unix(0, 0), time.Unix(0, 0))
	for _, token := range []string{"", "wrong"} {
		code, body := ask("GET", taken, "", token)
		assert.Equal(t, http.StatusUnauthorized, code)
		assert.NotContains(t, body, "10.0.0.1")
	}
	_, body := ask("GET", taken, "", "secret")
	assert.JSONEq(t, `{"addresses":["10.0.0.1"]}`, body)
	for text, want := range map[string]int{
		"": http.StatusBadRequest, `{"address":"x"}`: http.StatusBadRequest, `{"address":"10.0.0.1","prefixLength":33}`: http.StatusBadRequest,
		`{"address":"` + strings.Repeat("1", maxBody) + `"}`: http.StatusBadRequest, `{"address":"10.0.0.1","pool":"lan"}`: http.StatusNoContent,
	} {
		code, _ := ask("PUT", given, text, "secret")
		assert.Equal(t, want, code, text[:min(len(text), 40)])
	}
	require.NoError(t, os.WriteFile(token, []byte("next"), 0o600))
	_, body = ask("GET", taken, "", "next")
	assert.JSONEq(t, `{"addresses":[]}`, body, "the token is read for every request")
	code, _ = ask("DELETE", given, "", "next")
	assert.Equal(t, http.StatusNoContent, code)
	code, _ = ask("GET", "/healthz", "", "")
	assert.Equal(t, http.StatusOK, code)
}
