// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocate decides which address a claim gets. It is pure: it sees values and returns values.
package allocate

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

// Claim is what matters of a claim, of whatever kind.
type Claim struct {
	// Name by which the pool knows the claim: with its namespace where that is another one than the pool's.
	Name string
	// Tenant is the namespace of the claim where it is another one than the pool's; empty otherwise.
	Tenant string
	// PrefixLength is the length of the prefix that the claim asks for; zero for a single address, negative where it asks for something that is no length.
	PrefixLength int
	// Requested is the text of the annotation that asks for an address.
	Requested string
	// Bound is the name of the IPAddress that the status names.
	Bound string
	// Held is the address that the claim has by an object of another kind, made before this operator took its locks.
	Held netip.Addr
	// Intended is the address of a former claim of the same name that this claim was about to take over.
	Intended netip.Addr
	// Deleting says that the claim is going away.
	Deleting bool
	// Unserved says that the claim names a pool of a kind that is not served.
	Unserved bool
	// Finalized says that the claim carries the finalizer of the operator.
	Finalized bool
	// ForeignFinalizers says that another controller still needs the claim.
	ForeignFinalizers bool
	// NeedsCluster says that nothing but a release may be done for the claim while its Cluster is missing.
	NeedsCluster bool
	// NeedsPrefix says that an address without the length of its network prefix is of no use to the claim.
	NeedsPrefix bool
	// Reported says that the status is up to date: the address, or no refusal.
	Reported bool
}

// Address is an IPAddress that belongs to the claim.
type Address struct {
	Name string
	UID  string
	IP   netip.Addr
	// Unowned says that no claim and no pool owns the object: it was restored or made by hand, and is adopted by the name of its claim.
	Unowned bool
	// Restored says that the object is unowned and carries the finalizer of the operator. It is what the claim had before.
	Restored bool
	// Released is when the object was deleted, or released after that; zero for one that is not being deleted.
	Released time.Time
}

// Hold says why nothing may be done for a claim.
type Hold string

// Holds.
const (
	// NotHeld lets everything happen.
	NotHeld Hold = ""
	// HeldPaused stops everything: cluster, pool or claim is paused, or the claim is being moved away.
	HeldPaused Hold = "Paused"
	// HeldClusterMissing stops allocation: the Cluster that the pool names is not there.
	HeldClusterMissing Hold = "ClusterNotFound"
)

// Pool is what matters of a pool.
type Pool struct {
	// Name of the pool that the claim names.
	Name string
	// Found says that it exists.
	Found bool
	// Deleting says that it is going away.
	Deleting bool
	// Allows says that it serves claims of the namespace of the claim.
	Allows bool
	// Finalized says that it carries the finalizer that keeps it while it has addresses.
	Finalized bool
	// Free is what it has to give; nil unless it is found.
	Free *Free
}

// Snapshot is everything that a decision rests on.
type Snapshot struct {
	Claim Claim
	Pool  Pool
	Hold  Hold
	// Ahead is how many older claims wait for any address of the pool.
	Ahead int
	// Owned are the IPAddress objects of this claim, oldest first.
	Owned []Address
	// Kept is the released address that the pool keeps for a claim of this name; zero where there is none.
	Kept Address
	// Holder is the object that has the address that the claim asks for, or that is preallocated to it; empty where it is free or unknown.
	Holder string
	// NextFree is when the first of the released addresses of the pool is free; zero where none is on its way.
	NextFree time.Time
	// Random is a random number; any value is as good as any other.
	Random ipset.Number
}

// Why names the cause of a decision. It is the reason in logs and events and a label of metrics.
type Why string

// Causes.
const (
	WhyServed            Why = "Served"
	WhyPaused            Why = "Paused"
	WhyForeignFinalizers Why = "ForeignFinalizers"
	WhyDeleted           Why = "Deleted"
	WhyFound             Why = "AddressFound"
	WhyPreallocated      Why = "PreAllocated"
	WhyRequested         Why = "Requested"
	WhyRestored          Why = "Restored"
	WhyHeld              Why = "Held"
	WhyChosen            Why = "Chosen"
	WhyPoolNotReady      Why = ipamv1.ReasonPoolNotReady
	WhyClusterNotFound   Why = ipamv1.ReasonClusterNotFound
	WhyExhausted         Why = ipamv1.ReasonPoolExhausted
	WhyNotServed         Why = ipamv1.ReasonNotServed
	WhyRefused           Why = ipamv1.ReasonAllocationFailed
	WhyNotAllowed        Why = ipamv1.ReasonNamespaceNotAllowed
	WhyQuota             Why = ipamv1.ReasonQuotaExceeded
)

// Action is what is to be done: one of Nothing, Adopt, Create, Release and Refuse.
//
//sumtype:decl
type Action interface{ action() }

// Nothing is the action that changes no object.
type Nothing struct{}

// Adopt makes the status name an IPAddress that the claim has already, and gives back any other one that it has: after
// a crash, or when two replicas served the claim at once.
type Adopt struct {
	Address Address
	Surplus []Address
}

// Create takes an address by creating an IPAddress.
type Create struct {
	IP      netip.Addr
	Name    string
	Network Network
	// PrefixLength is the length of the prefix that begins with the address; zero for a single address.
	PrefixLength int
	// Tenant is the namespace of the claim where it is another one than the pool's; empty otherwise.
	Tenant string
	// Replaces is the released object of this address that goes first; zero where there is none.
	Replaces Address
}

// Release gives the addresses of a deleted claim back and removes the finalizer of the claim.
type Release struct{ Addresses []Address }

// Refuse writes to the claim why it gets no address for now.
type Refuse struct {
	// Error is the text for status.errorMessage; empty while the claim only waits.
	Error string
	// Message is the text for the condition.
	Message string
	// Position in the queue of those that wait for any address of the pool, at most one more than ReportedPositions; zero where there is no queue.
	Position int
}

func (Nothing) action() {}
func (Adopt) action()   {}
func (Create) action()  {}
func (Release) action() {}
func (Refuse) action()  {}

// Decision is an action and its cause.
type Decision struct {
	Action Action
	Why    Why
}

// ErrNotFree is the known wording for an address that a claim asks for and cannot have.
const ErrNotFree = "Requested IP not available"

// Asked is the one address that will do for a claim: the one that its pool has for it, or that it asks for. False means that any will do, or that what it asks for
// is no address.
func Asked(layout *Layout, claim Claim) (netip.Addr, bool) {
	if addr, ok := layout.Reserved(claim.Name); ok {
		return addr, true
	}
	addr, err := ParseAddr(claim.Requested)
	return addr, err == nil
}

// The wording that users and their tools know.
const (
	errExhausted    = "Exhausted IP Pools"
	errAnnotation   = `Invalid ipAddress annotation "%s": not a valid IP address`
	errConflicting  = "PreAllocation and requested ip address are conflicting"
	errOutOfBounds  = "Pre-allocated IP out of bounds"
	errNotAllowed   = "Namespace not allowed"
	errQuota        = "Quota of the namespace exceeded"
	errNoPrefixes   = "No prefixes of this length"
	errPrefixLength = "Invalid annotation " + ipamv1.PrefixLengthAnnotation
	errNoPrefix     = "Invalid prefix value, it must be between 1 and 128"
)

// Plan decides what is to be done for a claim.
func Plan(s Snapshot) Decision {
	switch {
	case s.Hold == HeldPaused:
		return Decision{Nothing{}, WhyPaused}
	case s.Claim.Deleting && s.Claim.ForeignFinalizers:
		return Decision{Nothing{}, WhyForeignFinalizers}
	case s.Claim.Deleting:
		return Decision{Release{Addresses: s.Owned}, WhyDeleted}
	case s.Claim.Unserved && s.Claim.Finalized && len(s.Owned) == 0:
		return Decision{Release{}, WhyNotServed}
	case s.Claim.Unserved:
		return Decision{Nothing{}, WhyNotServed}
	case len(s.Owned) > 0 && s.Hold == HeldClusterMissing && s.Claim.NeedsCluster:
		return Decision{Nothing{}, WhyClusterNotFound}
	case len(s.Owned) > 0:
		return adopt(s)
	case s.Claim.Tenant != "" && (!s.Pool.Found || !s.Pool.Allows):
		return notAllowed(s)
	case s.Hold == HeldClusterMissing:
		return Decision{Refuse{Message: "the Cluster of the pool does not exist yet"}, WhyClusterNotFound}
	case !s.Pool.Found && s.Claim.Held.IsValid():
		return Decision{Nothing{}, WhyHeld} // there is no pool that others get the address from
	case !s.Pool.Found:
		return Decision{Refuse{Message: fmt.Sprintf("IPPool %s does not exist", s.Pool.Name)}, WhyPoolNotReady}
	case s.Claim.Held.IsValid(): // it has its address, whatever becomes of the pool
	case s.Pool.Deleting:
		return Decision{Refuse{Message: fmt.Sprintf("IPPool %s is being deleted", s.Pool.Name)}, WhyPoolNotReady}
	case !s.Pool.Finalized:
		return Decision{Refuse{Message: fmt.Sprintf("IPPool %s is not ready yet", s.Pool.Name)}, WhyPoolNotReady}
	}
	return allocateNew(s)
}

// adopt keeps an address that was restored, then the address that the status names, and without one the oldest: every replica decides alike. A claim
// that was restored before its address may have got another one meanwhile; what uses the claim has the restored one.
func adopt(s Snapshot) Decision {
	keep, isRestored := 0, false
	for i, address := range s.Owned {
		if address.Restored && !isRestored || address.Name == s.Claim.Bound && address.Restored == isRestored {
			keep, isRestored = i, address.Restored
		}
	}
	var surplus []Address
	for i, address := range s.Owned {
		if i != keep {
			surplus = append(surplus, address)
		}
	}
	if len(surplus) == 0 && !s.Owned[keep].Unowned && s.Claim.Reported && s.Claim.Finalized && s.Owned[keep].Name == s.Claim.Bound {
		return Decision{Nothing{}, WhyServed}
	}
	return Decision{Adopt{Address: s.Owned[keep], Surplus: surplus}, WhyFound}
}

func allocateNew(s Snapshot) Decision {
	layout, bits := s.Pool.Free.Layout, s.Claim.PrefixLength
	if bits < 0 {
		return refuse(errPrefixLength, "write a length in bits such as 28, or remove the annotation")
	}
	if !layout.HasPrefixes(bits) {
		return refuse(errNoPrefixes, fmt.Sprintf("no entry of IPPool %s has allocationPrefixLength %d", s.Pool.Name, bits))
	}
	if s.Claim.Held.IsValid() {
		network, _ := layout.NetworkOf(s.Claim.Held, bits)
		return create(s, s.Claim.Held, network, WhyHeld)
	}
	var requested netip.Addr
	if s.Claim.Requested != "" {
		addr, err := ParseAddr(s.Claim.Requested)
		if err != nil {
			return refuse(fmt.Sprintf(errAnnotation, shortened(s.Claim.Requested)), "")
		}
		requested = addr
	}
	reserved, preallocated := layout.Reserved(s.Claim.Name)
	switch {
	case preallocated && requested.IsValid() && requested != reserved:
		return refuse(errConflicting, fmt.Sprintf("the claim asks for %s, the pool has %s for it", requested, reserved))
	case preallocated:
		return preallocate(s, reserved)
	case requested.IsValid():
		return request(s, requested)
	}
	for _, before := range s.former() {
		if obstacle(s, before) == "" {
			network, _ := layout.network(before, bits)
			return create(s, before, network, WhyRestored)
		}
	}
	if s.Ahead > 0 && s.Pool.Free.CountOf(bits) <= int64(s.Ahead) {
		return exhausted(s)
	}
	addr, ok := s.Pool.Free.choose(s.Random, bits)
	if !ok {
		return exhausted(s)
	}
	network, _ := layout.network(addr, bits)
	return create(s, addr, network, WhyChosen)
}

// exhausted refuses a claim that any address would help.
func exhausted(s Snapshot) Decision {
	place := fmt.Sprintf("position %d in the queue", s.Ahead+1)
	if s.Ahead >= ReportedPositions {
		place = fmt.Sprintf("more than %d claims are older", ReportedPositions)
	}
	return Decision{Refuse{
		Error: errExhausted, Position: min(s.Ahead, ReportedPositions) + 1,
		Message: fmt.Sprintf("%s: every %s of %s is taken or reserved%s; %s", errExhausted, s.unit(), s.Pool.Name, s.coolingDown(), place),
	}, WhyExhausted}
}

// unit is what a claim asks for, in words.
func (s Snapshot) unit() string {
	if s.Claim.PrefixLength != 0 {
		return fmt.Sprintf("prefix of the length %d", s.Claim.PrefixLength)
	}
	return "address"
}

// coolingDown distinguishes a cool-down from exhaustion.
func (s Snapshot) coolingDown() string {
	if s.NextFree.IsZero() {
		return ""
	}
	return ", and the first of those that cool down is free at " + s.NextFree.UTC().Format(time.RFC3339)
}

// taken says that an address is taken, and by what.
func (s Snapshot) taken(addr netip.Addr) string {
	if s.Holder == "" {
		return fmt.Sprintf("%s is taken", addr)
	}
	return fmt.Sprintf("%s is taken by %s", addr, s.Holder)
}

// ReportedPositions is how many claims of a queue report their exact position. Those behind report that so many are ahead, so that a queue that moves
// costs no write for each of them.
const ReportedPositions = 100

func preallocate(s Snapshot, addr netip.Addr) Decision {
	network, ok := s.Pool.Free.Layout.NetworkOf(addr, s.Claim.PrefixLength)
	if !ok {
		return refuse(errOutOfBounds, s.inNoEntry(addr))
	}
	if owner, _ := s.Pool.Free.Layout.ReservedFor(addr); owner != s.Claim.Name {
		return refuse(ErrNotFree, s.reservedFor(addr, owner))
	}
	if s.isTaken(addr) {
		return refuse(ErrNotFree, s.taken(addr))
	}
	return create(s, addr, network, WhyPreallocated)
}

func request(s Snapshot, addr netip.Addr) Decision {
	if what, ok := s.Pool.Free.Layout.special[addr]; ok {
		return refuse(ErrNotFree, fmt.Sprintf("%s is %s and is given to no claim", addr, what))
	}
	if why := obstacle(s, addr); why != "" {
		return refuse(ErrNotFree, why)
	}
	network, _ := s.Pool.Free.Layout.network(addr, s.Claim.PrefixLength)
	return create(s, addr, network, WhyRequested)
}

// inNoEntry says that the pool does not have an address, or no prefix that begins with it.
func (s Snapshot) inNoEntry(addr netip.Addr) string {
	if s.Claim.PrefixLength != 0 {
		return fmt.Sprintf("%s begins no prefix of an entry of IPPool %s with allocationPrefixLength %d", addr, s.Pool.Name, s.Claim.PrefixLength)
	}
	return fmt.Sprintf("%s lies in no entry of IPPool %s", addr, s.Pool.Name)
}

// reservedFor says that an address is preallocated, and to the pool's own namespace to which claim.
func (s Snapshot) reservedFor(addr netip.Addr, owner string) string {
	if s.Claim.Tenant != "" {
		return fmt.Sprintf("%s is pre-allocated to another claim", addr)
	}
	return fmt.Sprintf("%s is pre-allocated to claim %s", addr, owner)
}

// obstacle is why a claim cannot have an address that it asks for, or that it had before; empty means that it can. Such an address may be one that the pool
// gives only on request.
func obstacle(s Snapshot, addr netip.Addr) string {
	layout := s.Pool.Free.Layout
	_, ok := layout.network(addr, s.Claim.PrefixLength)
	owner, isReserved := layout.ReservedFor(addr)
	switch {
	case !ok:
		return s.inNoEntry(addr)
	case layout.isExcluded(addr):
		return fmt.Sprintf("%s is excluded", addr)
	case s.Claim.PrefixLength != 0 && layout.home(addr) < 0:
		return fmt.Sprintf("a part of %s is reserved or excluded", block(addr, s.Claim.PrefixLength))
	case isReserved:
		return s.reservedFor(addr, owner)
	case s.isTaken(addr):
		return s.taken(addr)
	}
	return ""
}

func create(s Snapshot, addr netip.Addr, network Network, why Why) Decision {
	if s.overQuota(addr) {
		return QuotaExceeded(s.Pool.Name, s.Claim.Tenant, s.Pool.Free.Layout.PerNamespace)
	}
	if network.Prefix == 0 && s.Claim.NeedsPrefix && why != WhyHeld {
		return refuse(errNoPrefix, fmt.Sprintf("IPPool %s states none for %s; write prefix or subnet into it", s.Pool.Name, addr))
	}
	action := Create{IP: addr, Name: AddressName(s.Pool.Free.Layout.NamePrefix, addr), Network: network, PrefixLength: s.Claim.PrefixLength, Tenant: s.Claim.Tenant}
	if addr == s.Kept.IP && action.Name == s.Kept.Name {
		action.Replaces = s.Kept
	}
	return Decision{action, why}
}

// quoted is how much of a text of a user a refusal quotes, in bytes: more than an address has, and less than a status can hold.
const quoted = 64

// shortened is a text as a refusal quotes it.
func shortened(text string) string {
	if len(text) <= quoted {
		return text
	}
	return strings.ToValidUTF8(text[:quoted], "") + "…"
}

func refuse(wire, detail string) Decision {
	message := wire
	if detail != "" {
		message += ": " + detail
	}
	return Decision{Refuse{Error: wire, Message: message}, WhyRefused}
}
