// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ClaimName is what a claim and an earlier one that it replaces have in common.
type ClaimName struct {
	Kind string
	types.NamespacedName
}

// Claim is a claim that an object was made for.
type Claim struct {
	Name ClaimName
	UID  types.UID
}

// Made is Learn for an object that this process made for a claim. The attempt of the claim goes on until GiveUp.
func (x *Index) Made(r Record, claim Claim, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.observe(&record{Record: r, unseenSince: now, claim: &claim})
}

// MadeFor is the object that this process made for a claim and that the watch has not shown yet.
func (x *Index) MadeFor(claim types.UID) (Record, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r, ok := x.made[claim]; ok {
		return r.Record, true
	}
	return Record{}, false
}

// MadeForName are the objects that this process made for claims of a name, and that the watch has not shown yet. The claim of an object may be gone.
func (x *Index) MadeForName(claim ClaimName) []Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []Record
	for _, r := range x.madeByName[claim] {
		out = append(out, r.Record)
	}
	return out
}

func (x *Index) noteMade(r *record) {
	if r.claim == nil {
		return
	}
	x.made[r.claim.UID] = r
	put(x.madeByName, r.claim.Name, r.Key, r)
}

func (x *Index) dropMade(r *record) {
	if r.claim == nil {
		return
	}
	if x.made[r.claim.UID] == r {
		delete(x.made, r.claim.UID)
	}
	drop(x.madeByName, r.claim.Name, r.Key)
}
