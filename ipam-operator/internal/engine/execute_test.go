// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

var errLost = errors.New("the connection broke")

// onAddress makes the n-th creation of an IPAddress fail; lost says that only its answer is lost.
func onAddress(n int, lost bool, err error) interceptor.Funcs {
	seen := 0
	return interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if _, ok := obj.(*ipamv1.IPAddress); !ok {
			return c.Create(ctx, obj, opts...)
		}
		if seen++; seen != n {
			return c.Create(ctx, obj, opts...)
		}
		if lost {
			return errors.Join(c.Create(ctx, obj.DeepCopyObject().(client.Object), opts...), err)
		}
		return err
	}}
}

func TestCreationOfAnAddress(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "ipaddresses"}, "x", errors.New("no more"))
	for name, test := range map[string]struct {
		faults  interceptor.Funcs
		before  func(s *shell)
		fails   bool
		want    map[string]string
		bound   string
		says    string
		heals   map[string]string // after one more pass
		waiting allocate.Why
	}{
		"the name is free": {want: map[string]string{"p-10-0-0-1": "c"}, bound: "p-10-0-0-1"},
		"another claim has the name: the next address is tried at once": {
			before: func(s *shell) { s.create(s.address("p-10-0-0-1", "10.0.0.1", "other")) },
			want:   map[string]string{"p-10-0-0-1": "other", "p-10-0-0-2": "c"}, bound: "p-10-0-0-2",
		},
		"an earlier claim of this name has it": {
			before: func(s *shell) {
				address := s.address("p-10-0-0-1", "10.0.0.1", "c")
				address.OwnerReferences[0].UID = "uid-of-another-life"
				s.create(address)
			},
			want: map[string]string{"p-10-0-0-1": "c", "p-10-0-0-2": "c"}, bound: "p-10-0-0-2",
		},
		"all names are taken": {
			before: func(s *shell) {
				s.create(s.address("p-10-0-0-1", "10.0.0.1", "other"))
				s.create(s.address("p-10-0-0-2", "10.0.0.2", "another"))
			},
			want: map[string]string{"p-10-0-0-1": "other", "p-10-0-0-2": "another"}, says: "Exhausted IP Pools", waiting: allocate.WhyExhausted,
		},
		"the answer is lost, the address is there": {
			faults: onAddress(1, true, errLost), want: map[string]string{"p-10-0-0-1": "c"}, bound: "p-10-0-0-1",
		},
		"the write is lost": {
			faults: onAddress(1, false, errLost), fails: true, want: map[string]string{}, heals: map[string]string{"p-10-0-0-1": "c"},
		},
		"the API server does not take it": {
			faults: onAddress(1, false, forbidden), fails: true, want: map[string]string{}, waiting: allocate.WhyRefused,
			says: "Failed to create associated IPAddress object", heals: map[string]string{"p-10-0-0-1": "c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.2"), faults: test.faults})
			if test.before != nil {
				test.before(s)
			}
			s.claim("c")
			_, err := s.reconcile("c")
			assert.Equal(t, test.fails, err != nil, "%v", err)
			assert.Equal(t, test.want, s.addresses())
			s.shows(test.bound, test.says)
			why, _ := s.reconciler.records.why(key("c"), "uid-c")
			assert.Equal(t, test.waiting, why)
			if test.heals != nil {
				_, err := s.reconcile("c")
				require.NoError(t, err)
				assert.Equal(t, test.heals, s.addresses())
				s.shows("p-10-0-0-1", "")
			}
		})
	}
}

// TestAnAttemptEndsWithItsClaim hides whether an address was written, and then removes the claim.
func TestAnAttemptEndsWithItsClaim(t *testing.T) {
	for name, after := range map[string]func(s *shell){
		"it is gone": func(*shell) {},
		"another one has its name, and its own address": func(s *shell) {
			s.claim("c", func(c *ipamv1.IPClaim) { c.UID = "uid-of-another-life" })
			_, err := s.reconcile("c")
			require.NoError(s.t, err)
			s.shows("p-10-0-0-1", "")
			s.index.Observe(recordOf(s.address("p-10-0-0-1", "10.0.0.1", "c")))
			s.reconciler.forgetAddress(recordOf(s.address("p-10-0-0-1", "10.0.0.1", "c")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			faults := onAddress(1, false, errLost)
			silent := true
			faults.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if _, ok := obj.(*ipamv1.IPAddress); ok && silent {
					return errLost
				}
				return c.Get(ctx, key, obj, opts...)
			}
			s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.1"), faults: faults})
			claim := s.claim("c", func(c *ipamv1.IPClaim) { c.Finalizers = nil })
			_, err := s.reconcile("c")
			require.ErrorIs(t, err, errLost)
			free, _ := s.index.Free(key("p"), 0)
			require.Zero(t, free, "it may have been written")
			silent = false
			require.NoError(t, s.client.Delete(t.Context(), claim))
			after(s)
			_, err = s.reconcile("c")
			require.NoError(t, err)
			free, _ = s.index.Free(key("p"), 0)
			assert.Equal(t, int64(1), free)
		})
	}
}

// create stores an address that the index does not know of yet: the watch is behind.
func (s *shell) create(address *ipamv1.IPAddress) {
	s.t.Helper()
	require.NoError(s.t, s.client.Create(s.t.Context(), address))
}

// shows requires what the status of claim c says.
func (s *shell) shows(bound, message string) {
	s.t.Helper()
	status := s.get("c").Status
	if bound == "" {
		assert.Nil(s.t, status.Address)
	} else if assert.NotNil(s.t, status.Address) {
		assert.Equal(s.t, bound, status.Address.Name)
	}
	if message == "" {
		assert.Nil(s.t, status.ErrorMessage)
	} else if assert.NotNil(s.t, status.ErrorMessage) {
		assert.Equal(s.t, message, *status.ErrorMessage)
	}
}

// onStatus makes every write of the status of a claim fail.
func onStatus(err error) interceptor.Funcs {
	return interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		return err
	}}
}

func TestPublishing(t *testing.T) {
	claims := schema.GroupResource{Group: "ipam.metal3.io", Resource: "ipclaims"}
	t.Run("a claim that changed is looked at again soon, and keeps its address", func(t *testing.T) {
		s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), faults: onStatus(apierrors.NewConflict(claims, "c", errLost))})
		s.claim("c")
		for range 2 {
			result, err := s.reconcile("c")
			require.NoError(t, err)
			assert.NotZero(t, result.RequeueAfter)
			assert.Equal(t, map[string]string{"p-10-0-0-1": "c"}, s.addresses(), "it has one address, however often it is tried")
		}
	})
	t.Run("a claim that is gone meanwhile leaves no address", func(t *testing.T) {
		faults := interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			claim := &ipamv1.IPClaim{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), claim); err != nil {
				return err
			}
			claim.Finalizers = nil
			if err := c.Update(ctx, claim); err != nil {
				return err
			}
			if err := c.Delete(ctx, claim); err != nil {
				return err
			}
			return apierrors.NewNotFound(claims, "c")
		}}
		s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), faults: faults})
		s.claim("c")
		_, err := s.reconcile("c")
		require.NoError(t, err)
		assert.Empty(t, s.addresses())
	})
	t.Run("an error of the API server is returned", func(t *testing.T) {
		s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), faults: onStatus(errLost)})
		s.claim("c")
		_, err := s.reconcile("c")
		require.ErrorIs(t, err, errLost)
		assert.Equal(t, map[string]string{"p-10-0-0-1": "c"}, s.addresses())
	})
}

func TestARefusalIsWrittenOnce(t *testing.T) {
	writes := 0
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.1"), faults: interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}})
	s.create(s.address("p-10-0-0-1", "10.0.0.1", "other"))
	s.index.Observe(recordOf(s.address("p-10-0-0-1", "10.0.0.1", "other")))
	s.claim("c")
	for range 3 {
		_, err := s.reconcile("c")
		require.NoError(t, err)
	}
	assert.Equal(t, 1, writes)
	assert.Equal(t, []string{"PoolExhausted"}, s.events.reasons)
	assert.Equal(t, map[allocate.Why]int{allocate.WhyExhausted: 1}, s.reconciler.Waiting())
}

func TestGivingBack(t *testing.T) {
	for name, test := range map[string]struct {
		grace      int64
		finalizers []string
		want       map[string]string
		claimGone  bool
	}{
		"at once":                              {finalizers: []string{ipamv1.IPClaimFinalizer}, want: map[string]string{}, claimGone: true},
		"after a cool-down":                    {grace: 60, finalizers: []string{ipamv1.IPClaimFinalizer}, want: map[string]string{"p-10-0-0-1": "c"}, claimGone: true},
		"not while another finalizer keeps it": {finalizers: []string{ipamv1.IPClaimFinalizer, "example.com/other"}, want: map[string]string{"p-10-0-0-1": "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), grace: test.grace})
			claim := s.claim("c", func(c *ipamv1.IPClaim) { c.Finalizers = test.finalizers })
			_, err := s.reconcile("c")
			require.NoError(t, err)
			require.NoError(t, s.client.Delete(t.Context(), claim))
			_, err = s.reconcile("c")
			require.NoError(t, err)
			assert.Equal(t, test.want, s.addresses())
			assert.Equal(t, test.claimGone, apierrors.IsNotFound(s.client.Get(t.Context(), key("c"), claim)))
		})
	}
}

func TestASecondAddressOfAClaimIsGivenBack(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
	s.claim("c", func(c *ipamv1.IPClaim) {
		c.Status.Address = &ipamv1.ObjectReference{Name: "p-10-0-0-2", Namespace: "ns"}
	})
	for name, ip := range map[string]string{"p-10-0-0-1": "10.0.0.1", "p-10-0-0-2": "10.0.0.2"} {
		s.create(s.address(name, ip, "c"))
	}
	_, err := s.reconcile("c")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"p-10-0-0-2": "c"}, s.addresses(), "the one that the status names stays")
}

func TestNothingIsDoneWhilePaused(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
	s.claim("c", func(c *ipamv1.IPClaim) { c.Annotations = map[string]string{ipamv1.PausedAnnotation: ""} })
	_, err := s.reconcile("c")
	require.NoError(t, err)
	assert.Empty(t, s.addresses())
	assert.Equal(t, map[allocate.Why]int{allocate.WhyPaused: 1}, s.reconciler.Waiting())
}
