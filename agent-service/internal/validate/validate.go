// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"slices"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// Validation is one rule about a host. A new one is an entry of a list in this package, and its cases in the test.
type Validation struct {
	// ID is on the wire: clients of assisted-service know it.
	ID string
	// Category is Hardware or Network.
	Category string
	// About says in one sentence what is looked at, for the page of all validations.
	About string
	// Blocks keeps a free host from being ready to be bound. Every validation keeps a bound host from being installed, unless it warns.
	Blocks bool
	// Warns is true for a validation that keeps a host from nothing.
	Warns bool
	// Mandatory is true for a validation that a cluster cannot ignore.
	Mandatory bool
	// Needs is what has to be known before Func is called.
	Needs Needs
	// Func looks at a host.
	Func func(in *Input) Outcome
}

// Categories of validations.
const (
	Hardware = "hardware"
	Network  = "network"
)

// Needs is what a validation has to know. The zero value is nothing.
type Needs uint8

const (
	// Inventory is that of the host: the validation is pending without it.
	Inventory Needs = 1 << iota
	// Cluster is the one that the host is in: the validation is left out for a free host.
	Cluster
)

// Outcome is what a validation says of a host.
type Outcome struct {
	Status Status
	// Message is one sentence.
	Message string
}

// Input is what validations look at.
type Input struct {
	Subject
	// Cluster is nil for a free host.
	Cluster *Surroundings
	// Least is what every host needs, and ForRole what a host of its role needs.
	Least, ForRole Minimum
	// Target is the disk that would be installed to; Found is false where there is none.
	Target hardware.Target
	Found  bool
}

// byID has all validations.
var byID = func() map[string]Validation {
	found := map[string]Validation{}
	for _, v := range All() {
		found[v.ID] = v
	}
	return found
}()

// All are the validations in the order of their results.
func All() []Validation { return slices.Concat(ofMachine, ofNetwork, inCluster) }

// Host looks at a host, and at its place in a cluster where cluster is not nil. The results are in the order of All.
func Host(s Subject, cluster *Surroundings, minimums Minimums) []Result {
	in := &Input{Subject: s, Cluster: cluster, Least: minimums["auto-assign"], ForRole: minimums.of(s.Role)}
	in.Target, in.Found = Disk(s, minimums)
	results := make([]Result, 0, len(byID))
	for _, list := range [][]Validation{ofMachine, ofNetwork, inCluster} {
		for i := range list {
			if v := &list[i]; cluster != nil || v.Needs&Cluster == 0 {
				results = append(results, v.result(in))
			}
		}
	}
	return results
}

func (v *Validation) result(in *Input) Result {
	r := Result{ID: v.ID, Category: v.Category}
	if v.Needs&Inventory != 0 && in.Summary.Hash == "" {
		r.Status, r.Message = Pending, "Missing inventory"
	} else {
		outcome := v.Func(in)
		r.Status, r.Message = outcome.Status, outcome.Message
	}
	if in.Cluster != nil && !v.Mandatory && slices.Contains(in.Cluster.Ignored, v.ID) {
		r.Status = Disabled
	}
	return r
}

// Ignorable are the ids of validations that a cluster may ignore.
func Ignorable() []string {
	var ids []string
	for _, v := range All() {
		if !v.Mandatory {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// Sufficient is true where nothing that blocks fails: with a cluster, and for being free.
func Sufficient(results []Result, bound bool) bool {
	return !slices.ContainsFunc(results, func(r Result) bool { return r.blocks(bound) })
}

// Failing are the sentences of what blocks.
func Failing(results []Result, bound bool) []string {
	var sentences []string
	for _, r := range results {
		if r.blocks(bound) {
			sentences = append(sentences, r.Message)
		}
	}
	return sentences
}

func (r Result) blocks(bound bool) bool {
	if r.Status != Failure && r.Status != Pending || byID[r.ID].Warns {
		return false
	}
	return bound || byID[r.ID].Blocks
}

func success(message string) Outcome  { return Outcome{Success, message} }
func failure(message string) Outcome  { return Outcome{Failure, message} }
func pending(message string) Outcome  { return Outcome{Pending, message} }
func disabled(message string) Outcome { return Outcome{Disabled, message} }

// passes is a success with one message, or a failure with the other.
func passes(ok bool, good, bad string) Outcome {
	if ok {
		return success(good)
	}
	return failure(bad)
}
