// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/check"
)

// faults makes some writes fail before they reach the API server, and loses the answers of others.
func faults(seed uint64) func(http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 7))
	return func(next http.RoundTripper) http.RoundTripper {
		return tripperFunc(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			luck := random.IntN(100)
			mu.Unlock()
			if req.Method == http.MethodGet || !strings.Contains(req.URL.Path, "ipam.metal3.io") {
				return next.RoundTrip(req)
			}
			if luck < 2 {
				return nil, errors.New("connection refused")
			}
			resp, err := next.RoundTrip(req)
			if luck < 4 && err == nil {
				_ = resp.Body.Close()
				return nil, errors.New("connection reset after the write took effect")
			}
			return resp, err
		})
	}
}

type tripperFunc func(*http.Request) (*http.Response, error)

func (f tripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestReplicasWithoutLeaderNeverDouble lets three replicas without leader election serve claims that come and go at
// random in one pool that is often full, with writes that fail, answers that are lost and replicas that are replaced.
func TestReplicasWithoutLeaderNeverDouble(t *testing.T) {
	if testing.Short() {
		t.Skip("creates thousands of claims")
	}
	total := 2000
	if n, err := strconv.Atoi(os.Getenv("IPAM_RACE_CLAIMS")); err == nil {
		total = n
	}
	w := newWorld(t)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.2", "10.0.1.60")}
		s.AllocationStrategy = ipamv1.RandomAllocation
	})
	stops := make([]func(), 3)
	for i := range stops {
		stops[i] = w.operator(faults(uint64(i)))
	}
	const users = 20
	var group sync.WaitGroup
	var mu sync.Mutex
	left := map[string]bool{}
	for user := range users {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(user), 3))
			var mine []*ipamv1.IPClaim
			for i := range total / users {
				claim := w.newClaim(fmt.Sprintf("u%d-%d", user, i), "p")
				if err := w.user.Create(t.Context(), claim); err != nil {
					t.Error(err)
					return
				}
				mine = append(mine, claim)
				for len(mine) > 15 || len(mine) > 0 && random.IntN(3) == 0 {
					at := random.IntN(len(mine))
					if err := client.IgnoreNotFound(w.user.Delete(t.Context(), mine[at])); err != nil {
						t.Error(err)
					}
					mine = append(mine[:at], mine[at+1:]...)
				}
				if user == 0 && i%(total/users/3) == 1 {
					stops[0]()
					stops[0] = w.operator(faults(uint64(100 + i)))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for _, claim := range mine {
				left[claim.Name] = true
			}
		})
	}
	group.Wait()
	claims, addresses := &ipamv1.IPClaimList{}, &ipamv1.IPAddressList{}
	state := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(state)
		}
	})
	w.eventually("not every claim is served or refused", func() bool {
		require.NoError(t, w.user.List(t.Context(), claims, client.InNamespace(w.namespace)))
		require.NoError(t, w.user.List(t.Context(), addresses, client.InNamespace(w.namespace)))
		findings, err := check.Run(t.Context(), w.user, w.namespace)
		require.NoError(t, err)
		served, waiting := 0, ""
		for _, claim := range claims.Items {
			if claim.Status.Address != nil {
				served++
			} else {
				waiting = fmt.Sprintf("%s %s %+v", claim.Name, claim.DeletionTimestamp, claim.Status)
			}
		}
		state = fmt.Sprintf("claims %d of %d, served %d, addresses %d, findings %v, waiting %s", len(claims.Items), len(left), served, len(addresses.Items), findings, waiting)
		return len(claims.Items) == len(left) && served == min(len(left), 315) && len(addresses.Items) == served
	})
	w.settled()
	for _, claim := range claims.Items {
		assert.True(t, left[claim.Name])
	}
}
