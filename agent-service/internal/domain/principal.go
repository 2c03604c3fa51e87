// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

// Principal is the user of a request: made from a token, or Kubernetes where the API server has checked already.
type Principal struct {
	User         string
	Organization string
	// Admin sees everything, and changes it unless ReadOnly.
	Admin bool
	// ReadOnly changes nothing and gets no credentials, whatever it sees.
	ReadOnly bool
}

// Kubernetes is the principal of controllers of custom resources.
var Kubernetes = Principal{User: "kubernetes", Admin: true}

// Machine is the principal of an agent: its token was checked against the InfraEnv of the path, or narrower.
var Machine = Principal{User: "agent", Admin: true}

// Owner says whose an object is. Hosts inherit it from their InfraEnv.
type Owner struct {
	User         string
	Organization string
}

// Owns is true where the principal may see and change what belongs to the owner: itself, its organization, or anything
// for an administrator. Without an organization on both sides only the user itself counts.
func (p Principal) Owns(o Owner) bool {
	if p.Admin {
		return true
	}
	if p.Organization != "" && p.Organization == o.Organization {
		return true
	}
	return p.User != "" && p.User == o.User && p.Organization == o.Organization
}

// Owner is what a new object of the principal records.
func (p Principal) Owner() Owner {
	return Owner{User: p.User, Organization: p.Organization}
}

// Scope limits lists to what a principal owns, of hosts also to those that are in clusters that it owns.
type Scope struct {
	Principal
}
