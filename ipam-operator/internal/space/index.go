// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package space keeps in memory which addresses of every pool are free. It is fed by the watch of address objects and by
// what this process has written and not seen yet. It is a hint: the name of the IPAddress object decides.
package space

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// Inventory is the group of what an inventory outside of the cluster says that others have.
const Inventory = "inventory"

// Named is the group of addresses that cannot be taken because another IPAddress, of another address, has their name.
const Named = "named"

// Key names an object that stands for an address: IPAddress objects of two API groups may have the same name.
type Key struct {
	Group string
	types.NamespacedName
}

// Record is an object that stands for an address.
type Record struct {
	Key Key
	// Pool that the object names.
	Pool types.NamespacedName
	IP   netip.Addr
	// PrefixLength is the length of the prefix that begins with IP; zero for a single address.
	PrefixLength int
	// Tenant is the namespace of the claim where it is another one than the pool's; empty otherwise.
	Tenant string
	// UID of the object.
	UID types.UID
	// Released is when the object was deleted that stays for a time; zero while it is in use.
	Released time.Time
}

// record is a Record and how it is known.
type record struct {
	Record
	// unseenSince is when a write or a read showed the object; zero once the watch has shown it.
	unseenSince time.Time
	// claim is the claim that this process made the object for, until the watch has shown it; nil for other objects.
	claim *Claim
}

type pool struct {
	lock types.NamespacedName // namespace and namePrefix: pools that share it share their addresses
	free *allocate.Free
}

// attempt is an address that this process is about to write for a claim, or does not know whether it has written, or is telling the claim about.
type attempt struct {
	pool     types.NamespacedName
	free     *allocate.Free // to tell whether the pool has changed since
	decision allocate.Decision
	ip       netip.Addr
	bits     int    // as PrefixLength of a Record
	tenant   string // as that of a Record
	// left is the object that stood for the address and was moved away. The attempt then waits for its claim to go on.
	left *Key
}

// Index is the free addresses of all pools. It is safe for concurrent use.
type Index struct {
	mu       sync.Mutex
	pools    map[types.NamespacedName]*pool
	records  map[Key]*record
	byPool   map[types.NamespacedName]map[Key]*record
	byLock   map[types.NamespacedName]map[Key]*record
	locks    map[types.NamespacedName]map[types.NamespacedName]*pool
	attempts map[types.UID]*attempt
	left     map[Key]types.UID // attempts by what they were left by
	made     map[types.UID]*record
	// madeByName are the objects of made by the names of their claims: a claim that is gone may have left some.
	madeByName map[ClaimName]map[Key]*record
	cooling    map[types.NamespacedName]map[Key]*record // released objects by pool
	// externals is how many records of an inventory each pool has.
	externals map[types.NamespacedName]int
}

// New returns an Index that knows nothing.
func New() *Index {
	return &Index{
		pools:    map[types.NamespacedName]*pool{},
		records:  map[Key]*record{},
		byPool:   map[types.NamespacedName]map[Key]*record{},
		byLock:   map[types.NamespacedName]map[Key]*record{},
		locks:    map[types.NamespacedName]map[types.NamespacedName]*pool{},
		attempts: map[types.UID]*attempt{},
		left:     map[Key]types.UID{},
		made:     map[types.UID]*record{},

		madeByName: map[ClaimName]map[Key]*record{},

		cooling: map[types.NamespacedName]map[Key]*record{},

		externals: map[types.NamespacedName]int{},
	}
}

// SetPool makes a pool known, or takes its new layout over.
func (x *Index) SetPool(name types.NamespacedName, layout *allocate.Layout) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropPool(name)
	p := &pool{lock: types.NamespacedName{Namespace: name.Namespace, Name: layout.NamePrefix}, free: allocate.NewFree(layout)}
	x.pools[name] = p
	put(x.locks, p.lock, name, p)
	for _, r := range x.byPool[name] {
		p.free.Occupy(r.IP, r.PrefixLength)
		p.free.Charge(r.Tenant, r.IP)
	}
	for _, r := range x.byLock[p.lock] {
		if r.Pool != name {
			p.free.Occupy(r.IP, r.PrefixLength)
		}
	}
	for _, a := range x.attempts {
		if a.pool == name {
			a.free = p.free
			p.free.Occupy(a.ip, a.bits)
			p.free.Charge(a.tenant, a.ip)
		}
	}
}

// DropPool forgets a pool.
func (x *Index) DropPool(name types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dropPool(name)
	for _, claim := range x.left {
		if x.attempts[claim].pool == name {
			x.giveUp(claim)
		}
	}
}

func (x *Index) dropPool(name types.NamespacedName) {
	if p, ok := x.pools[name]; ok {
		drop(x.locks, p.lock, name)
		delete(x.pools, name)
	}
}

// Observe takes over what the watch shows.
func (x *Index) Observe(r Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(&record{Record: r})
}

// Learn takes over the result of a read or a write of this process, now, before the watch shows it.
func (x *Index) Learn(r Record, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(&record{Record: r, unseenSince: now})
}

func (x *Index) observe(r *record) {
	if known, ok := x.records[r.Key]; ok {
		if known.unseenSince.IsZero() && !r.unseenSince.IsZero() && known.UID == r.UID {
			return
		}
		if known.UID == r.UID && !r.unseenSince.IsZero() && r.claim == nil {
			r.claim = known.claim
		}
		x.forget(known)
	}
	if claim, ok := x.left[r.Key]; ok {
		x.giveUp(claim)
	}
	x.records[r.Key] = r
	put(x.byPool, r.Pool, r.Key, r)
	if r.Key.Group == Inventory {
		x.externals[r.Pool]++
	}
	if !r.Released.IsZero() {
		put(x.cooling, r.Pool, r.Key, r)
	}
	if lock, ok := r.lock(); ok {
		put(x.byLock, lock, r.Key, r)
	}
	for name, p := range x.affected(r) {
		p.free.Occupy(r.IP, r.PrefixLength)
		if name == r.Pool {
			p.free.Charge(r.Tenant, r.IP)
		}
	}
	x.noteMade(r)
}

// Get returns what is known of an object.
func (x *Index) Get(key Key) (Record, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r, ok := x.records[key]; ok {
		return r.Record, true
	}
	return Record{}, false
}

// Forget takes over that an object is gone. The pools that have an address more are returned.
func (x *Index) Forget(key Key) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	r, ok := x.records[key]
	if !ok {
		return nil
	}
	return x.forget(r)
}

// Leave takes over that an object is gone and that its address lives on elsewhere: here only its claim can get it again, until the pool is gone.
// The other pools that have an address more are returned.
func (x *Index) Leave(key Key, claim types.UID) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	r, ok := x.records[key]
	if !ok {
		return nil
	}
	gained := x.forget(r)
	p, ok := x.pools[r.Pool]
	if !ok || x.attempts[claim] != nil {
		return gained
	}
	p.free.Occupy(r.IP, r.PrefixLength)
	p.free.Charge(r.Tenant, r.IP)
	x.attempts[claim], x.left[key] = &attempt{pool: r.Pool, free: p.free, ip: r.IP, bits: r.PrefixLength, tenant: r.Tenant, left: &key}, claim
	return slices.DeleteFunc(gained, func(name types.NamespacedName) bool { return name == r.Pool })
}

func (x *Index) forget(r *record) []types.NamespacedName {
	delete(x.records, r.Key)
	drop(x.byPool, r.Pool, r.Key)
	if r.Key.Group == Inventory {
		if x.externals[r.Pool]--; x.externals[r.Pool] == 0 {
			delete(x.externals, r.Pool)
		}
	}
	drop(x.cooling, r.Pool, r.Key)
	if lock, ok := r.lock(); ok {
		drop(x.byLock, lock, r.Key)
	}
	x.dropMade(r)
	var gained []types.NamespacedName
	for name, p := range x.affected(r) {
		if name == r.Pool {
			p.free.Discharge(r.Tenant, r.IP)
		}
		if p.free.Vacate(r.IP, r.PrefixLength) {
			gained = append(gained, name)
		}
	}
	return gained
}

// affected are the pools that an object takes an address from: the one that it names, and those that would give their
// object the same name.
func (x *Index) affected(r *record) map[types.NamespacedName]*pool {
	out := map[types.NamespacedName]*pool{}
	if p, ok := x.pools[r.Pool]; ok {
		out[r.Pool] = p
	}
	if lock, ok := r.lock(); ok {
		maps.Copy(out, x.locks[lock])
	}
	return out
}

func (r *record) lock() (types.NamespacedName, bool) {
	prefix, ok := allocate.PrefixOfName(r.Key.Name, r.IP)
	return types.NamespacedName{Namespace: r.Key.Namespace, Name: prefix}, ok
}

// Decide plans for a claim with what its pool has free; nil where the pool is unknown. An address that the plan takes is
// taken at once, so that no two claims of this process choose the same. Where an earlier attempt may have been written
// without an answer, the decision is the same again. Addresses left to the claim stay so until it takes one.
func (x *Index) Decide(name types.NamespacedName, claim types.UID, plan func(*allocate.Free) allocate.Decision) allocate.Decision {
	x.mu.Lock()
	defer x.mu.Unlock()
	var free *allocate.Free
	if p, ok := x.pools[name]; ok {
		free = p.free
	}
	before := x.attempts[claim]
	if before != nil {
		x.giveUp(claim)
	}
	decision := plan(free)
	take, ok := decision.Action.(allocate.Create)
	if !ok {
		if before != nil && before.left != nil {
			before.free.Occupy(before.ip, before.bits)
			before.free.Charge(before.tenant, before.ip)
			x.attempts[claim], x.left[*before.left] = before, claim
		}
		return decision
	}
	if before != nil && before.left == nil && before.free == free && free.Choosable(before.ip) {
		decision, take.IP = before.decision, before.ip
	}
	x.attempts[claim] = &attempt{pool: name, free: free, decision: decision, ip: take.IP, bits: take.PrefixLength, tenant: take.Tenant}
	free.Occupy(take.IP, take.PrefixLength)
	free.Charge(take.Tenant, take.IP)
	return decision
}

// IsServed reports whether an address is on its way to a claim: it is not counted as free any more, and no other claim can get it.
func (x *Index) IsServed(claim types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.attempts[claim]
	return ok
}

// GiveUp ends the attempt of a claim: nothing was written, or an object stands for the address. It returns the address if the pool has that, or room for another
// one, to give to others now.
func (x *Index) GiveUp(claim types.UID) (gained netip.Addr) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.giveUp(claim)
}

func (x *Index) giveUp(claim types.UID) (gained netip.Addr) {
	a, ok := x.attempts[claim]
	if !ok {
		return gained
	}
	delete(x.attempts, claim)
	if a.left != nil {
		delete(x.left, *a.left)
	}
	p, ok := x.pools[a.pool]
	if !ok || p.free != a.free {
		return gained
	}
	left := p.free.Discharge(a.tenant, a.ip)
	if p.free.Vacate(a.ip, a.bits) || left {
		return a.ip
	}
	return gained
}

// Unseen are the objects that this process learnt about before a time and that the watch has not shown since: they may be
// gone without an event.
func (x *Index) Unseen(name types.NamespacedName, before time.Time) (old []Record, younger bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range x.byPool[name] {
		switch {
		case r.unseenSince.IsZero():
		case r.unseenSince.Before(before):
			old = append(old, r.Record)
		default:
			younger = true
		}
	}
	return old, younger
}

// Counts are the numbers of a pool; false means that it is unknown.
func (x *Index) Counts(name types.NamespacedName) (allocate.Counts, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p, ok := x.pools[name]
	if !ok {
		return allocate.Counts{}, false
	}
	return p.free.CountsBeside(x.external(name)), true
}

// External is what an inventory says that others have of a pool.
func (x *Index) External(name types.NamespacedName) []netip.Prefix {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.external(name)
}

func (x *Index) external(name types.NamespacedName) []netip.Prefix {
	if x.externals[name] == 0 {
		return nil
	}
	var out []netip.Prefix
	for key, r := range x.byPool[name] {
		if key.Group == Inventory {
			bits := cmp.Or(r.PrefixLength, r.IP.BitLen())
			out = append(out, netip.PrefixFrom(r.IP, bits))
		}
	}
	return out
}

// Free is how many addresses of a pool, or prefixes of a length, any claim can get, and the layout of the pool; nil means that it is unknown.
func (x *Index) Free(name types.NamespacedName, prefixLength int) (int64, *allocate.Layout) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p, ok := x.pools[name]; ok {
		return p.free.CountOf(prefixLength), p.free.Layout
	}
	return 0, nil
}

// Room is how many addresses of a pool the claims of another namespace can get beside those that they have.
func (x *Index) Room(name types.NamespacedName, tenant string) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p, ok := x.pools[name]; ok {
		return p.free.Room(tenant)
	}
	return 0
}

// Layout is what a pool hands out; nil means that it is unknown.
func (x *Index) Layout(name types.NamespacedName) *allocate.Layout {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p, ok := x.pools[name]; ok {
		return p.free.Layout
	}
	return nil
}

// NextFree is when the first of the released addresses of a pool is free; zero where none is on its way. One that should be free by now is in use: it was deleted, and its claim
// was not.
func (x *Index) NextFree(name types.NamespacedName, now time.Time) (next time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p, ok := x.pools[name]
	if !ok || p.free.Layout.CoolDown == 0 {
		return next
	}
	for _, r := range x.cooling[name] {
		if at := r.Released.Add(p.free.Layout.CoolDown); at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Pools are the names of all pools.
func (x *Index) Pools() []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]types.NamespacedName, 0, len(x.pools))
	for name := range x.pools {
		out = append(out, name)
	}
	return out
}

func put[A, B comparable, V any](m map[A]map[B]V, a A, b B, v V) {
	if m[a] == nil {
		m[a] = map[B]V{}
	}
	m[a][b] = v
}

func drop[A, B comparable, V any](m map[A]map[B]V, a A, b B) {
	delete(m[a], b)
	if len(m[a]) == 0 {
		delete(m, a)
	}
}
