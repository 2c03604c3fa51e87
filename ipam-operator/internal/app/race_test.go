// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/check"
)

const (
	// users create and delete claims at a time, capacity is what the pool has.
	users    = 20
	capacity = 315
	// raceClaims is how many claims are created; IPAM_RACE_CLAIMS in the environment says another number.
	raceClaims = 1000
)

// TestReplicasWithoutLeaderNeverDouble lets three replicas without leader election serve claims of both kinds that come and go at random in one pool that is
// often full. Each is a process of its own with bad luck, and one after the other is killed and replaced.
func TestReplicasWithoutLeaderNeverDouble(t *testing.T) {
	if testing.Short() {
		t.Skip("creates thousands of claims")
	}
	total := raceClaims
	if n, err := strconv.Atoi(os.Getenv("IPAM_RACE_CLAIMS")); err == nil {
		total = n
	}
	w := newTestEnv(t)
	w.installContract()
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.2", "10.0.1.60")}
		s.AllocationStrategy = ipamv1.RandomAllocation
	})
	var replicas [3]func()
	for i := range replicas {
		replicas[i] = w.replica(uint64(i))
	}
	kills := 0
	left := w.churn(total, func() {
		replicas[kills%len(replicas)]()
		replicas[kills%len(replicas)] = w.replica(uint64(100 + kills))
		kills++
	})
	t.Logf("%d claims were created, %d are left, %d processes were killed", total, len(left), kills)
	w.converged(left)
}

// churn creates and deletes claims at random and calls kill ten times meanwhile. It returns the names of those that are left.
func (w *testEnv) churn(total int, kill func()) map[string]bool {
	w.t.Helper()
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		done  atomic.Int64
	)
	left := map[string]bool{}
	for user := range users {
		group.Go(func() {
			mine := w.live(uint64(user), total/users, func() {
				if n := int(done.Add(1)); n%(total/10) == total/20 {
					mu.Lock()
					defer mu.Unlock()
					kill()
				}
			})
			mu.Lock()
			defer mu.Unlock()
			for _, name := range mine {
				left[name] = true
			}
		})
	}
	group.Wait()
	return left
}

// claimOf is a claim as a user makes it: one user of four uses the contract of Cluster API.
func (w *contractSite) claimOf(user uint64, name string) client.Object {
	if user%4 > 0 {
		return w.newClaim(name, "p")
	}
	claim := w.contractObject("IPAddressClaim", name)
	claim.Object["spec"] = contractPool("p")
	return claim
}

// attempt is the annotation that tells the claims of one name apart.
const attempt = "example.com/attempt"

// asUser repeats a request of a user until the API server has answered it: on a busy machine it may time out.
func (w *site) asUser(do func() error) {
	for deadline := time.Now().Add(5 * patience); ; wait(w.t.Context(), time.Second) {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || w.t.Context().Err() != nil {
			w.t.Error(err)
			return
		}
	}
}

// createAsUser creates a claim unless an earlier one of its name is there. A creation whose answer was lost is recognized.
func (w *site) createAsUser(claim client.Object) (created bool) {
	w.asUser(func() error {
		err := w.user.Create(w.t.Context(), claim.DeepCopyObject().(client.Object))
		if !apierrors.IsAlreadyExists(err) {
			created = err == nil
			return err
		}
		there := claim.DeepCopyObject().(client.Object)
		if err := w.user.Get(w.t.Context(), client.ObjectKeyFromObject(claim), there); err != nil {
			return err
		}
		created = there.GetAnnotations()[attempt] == claim.GetAnnotations()[attempt]
		return nil
	})
	return created
}

// live is a user: it creates n claims, some under the name of one that it has deleted, and keeps at most 15.
func (w *testEnv) live(seed uint64, n int, created func()) (mine []string) {
	random := rand.New(rand.NewPCG(seed, 3))
	var former []string
	for i := range n {
		name := fmt.Sprintf("u%d-%d", seed, i)
		if len(former) > 0 && random.IntN(4) == 0 {
			name, former = former[0], former[1:]
		}
		claim := w.claimOf(seed, name)
		claim.SetAnnotations(map[string]string{attempt: strconv.Itoa(i)})
		if w.createAsUser(claim) {
			mine = append(mine, name)
		} // else the former one has not gone yet
		created()
		for len(mine) > 15 || len(mine) > 0 && random.IntN(3) == 0 {
			at := random.IntN(len(mine))
			w.asUser(func() error { return client.IgnoreNotFound(w.user.Delete(w.t.Context(), w.claimOf(seed, mine[at]))) })
			former = append(former, mine[at])
			mine = append(mine[:at], mine[at+1:]...)
		}
	}
	return mine
}

// converged waits until the claims that are left are all that there is, each with an address as far as there are any, and a checker finds nothing.
func (w *testEnv) converged(left map[string]bool) {
	w.t.Helper()
	var state atomic.Value
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Log(state.Load())
			w.logReplicas(fmt.Sprint(state.Load()))
		}
	})
	names := map[string]bool{}
	w.whileMoving("not every claim is served or refused", &state, func() bool {
		claims, contract, addresses := &ipamv1.IPClaimList{}, &unstructured.UnstructuredList{}, &ipamv1.IPAddressList{}
		contract.SetGroupVersionKind(w.contractObject("IPAddressClaimList", "").GroupVersionKind())
		for _, list := range []client.ObjectList{claims, contract, addresses} {
			if err := w.user.List(w.t.Context(), list, client.InNamespace(w.namespace)); err != nil {
				state.Store(err.Error())
				return false
			}
		}
		clear(names)
		served, waiting := 0, []string{}
		for _, claim := range claims.Items {
			names[claim.Name] = claim.Status.Address != nil
		}
		for _, claim := range contract.Items {
			address, _, _ := unstructured.NestedString(claim.Object, "status", "addressRef", "name")
			names[claim.GetName()] = address != ""
		}
		for name, isServed := range names {
			if isServed {
				served++
			} else {
				waiting = append(waiting, name)
			}
		}
		findings, err := check.Run(w.t.Context(), w.user, w.namespace)
		state.Store(fmt.Sprintf("claims %d of %d, served %d, addresses %d, waiting %v, findings %v %v",
			len(names), len(left), served, len(addresses.Items), waiting, findings, err))
		return len(names) == len(left) && served == min(len(left), capacity) && len(addresses.Items) == served
	})
	w.settled()
	for name := range names {
		assert.True(w.t, left[name], name)
	}
}
