// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Unprotected are the addresses that this process took its finalizer off, until the cache shows that they are gone: nothing is left to do for them, and the API server
// need not be asked. It is safe for concurrent use. A nil one remembers none.
type Unprotected struct {
	mu        sync.Mutex
	addresses map[types.NamespacedName]unprotected
}

type unprotected struct {
	uid  types.UID
	done bool
}

// NewUnprotected returns an Unprotected without addresses.
func NewUnprotected() *Unprotected {
	return &Unprotected{addresses: map[types.NamespacedName]unprotected{}}
}

// begin is called before the finalizer is removed. Until it is, the watch may show that the address is gone.
func (u *Unprotected) begin(address types.NamespacedName, uid types.UID) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.addresses[address] = unprotected{uid: uid}
}

// done is called when the finalizer is removed.
func (u *Unprotected) done(address types.NamespacedName, uid types.UID) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.addresses[address].uid == uid {
		u.addresses[address] = unprotected{uid, true}
	}
}

// Has reports whether the finalizer of an address was removed.
func (u *Unprotected) Has(address types.NamespacedName, uid types.UID) bool {
	if u == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.addresses[address] == unprotected{uid, true}
}

// Forget is called when the cache does not show an address any more.
func (u *Unprotected) Forget(address types.NamespacedName) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.addresses, address)
}
